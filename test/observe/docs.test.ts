/** What the source code says about its diagnostics channels. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Registry } from 'prom-client';
import t from 'tap';
import { exposition, type Families } from '../../src/observe/exposition.ts';
import { labelsOf } from '../../src/observe/metric-table.ts';
import { addProcessMetrics, metricTable } from '../../src/observe/metrics.ts';
import {
  ENDPOINT_FAMILIES,
  servicePortFamilies,
  type CountedEndpoint,
} from '../../src/observe/service-port-metrics.ts';
import { newCounters } from '../../src/proxysocket/counters.ts';
import type { ServicePortSnapshot } from '../../src/proxysocket/engine.ts';
import { documentedMetrics, listItems } from '../support/markdown.ts';
import { parseMetrics } from '../support/metrics-page.ts';

const SRC = join(import.meta.dirname, '..', '..', 'src');

interface EventField {
  readonly name: string;
  readonly type: string;
}

interface EventChannel {
  /** With the prefix that all have. */
  readonly channel: string;
  readonly fields: readonly EventField[];
}

interface Shape {
  readonly fields: readonly EventField[];
  /** Another type that it has the fields of, too. */
  readonly parent: string | undefined;
}

const CHANNEL = /export const \w+ = typedChannel<(\w+)>\(\s*'([^']+)',?\s*\)/g;
const SHAPE =
  /^(?:export )?(?:interface (\w+)(?: extends (\w+))? \{\n([^]*?)\n\}|type (\w+) = (\w+);)/gm;
const FIELD = /^ {2}(\w+)(\??):\s+([^]*?);$/gm;

/** Every channel of src/. */
function eventChannels(): EventChannel[] {
  const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' }).filter(
    (path) => path.endsWith('.ts') && path !== join('util', 'channel.ts'),
  );
  return files.flatMap((file) => {
    const text = readFileSync(join(SRC, file), 'utf8');
    const shapes = shapesOf(text);
    return [...text.matchAll(CHANNEL)].map(([, type = '', name = '']): EventChannel => {
      return { channel: `kpng-userspace:${name}`, fields: fieldsOf(type, shapes) };
    });
  });
}

function shapesOf(text: string): ReadonlyMap<string, Shape> {
  const shapes = new Map<string, Shape>();
  for (const [, name, parent, body = '', alias, aliased] of text.matchAll(SHAPE)) {
    const bare = body.replaceAll(/\/\*\*[^]*?\*\//g, '');
    const fields = [...bare.matchAll(FIELD)].map(([, field = '', optional = '', type = '']) => {
      const options = type.replaceAll(/\s+/g, ' ').replace(/^\| /, '');
      return { name: field, type: optional === '' ? options : `${options} | undefined` };
    });
    if (name !== undefined) shapes.set(name, { fields, parent });
    else if (alias !== undefined) shapes.set(alias, { fields: [], parent: aliased });
  }
  return shapes;
}

function fieldsOf(type: string, shapes: ReadonlyMap<string, Shape>): EventField[] {
  const shape = shapes.get(type);
  if (shape === undefined) throw new Error(`${type} is not in this file`);
  const inherited = shape.parent === undefined ? [] : fieldsOf(shape.parent, shapes);
  return [...inherited, ...shape.fields];
}

const page = readFileSync(
  join(import.meta.dirname, '..', '..', 'docs/reference/metrics.md'),
  'utf8',
);

/** A service port that has something of everything. */
const BUSY: ServicePortSnapshot = {
  name: 'ns/svc:port',
  protocol: 'UDP',
  endpoints: 1,
  listeners: [
    {
      state: 'failed',
      listen: { address: '127.0.0.1', port: 1, traffic: 'internal' },
      code: 'KPNG_LISTEN_FAILED',
      cause: 'E',
    },
  ],
  counters: busy(newCounters()),
};

/** The same with 1 in place of each number. */
function busy<T>(counters: T): T {
  return JSON.parse(JSON.stringify(counters), (_, value) => (value === 0 ? 1 : value)) as T;
}

const ENDPOINT: CountedEndpoint = {
  servicePort: BUSY.name,
  protocol: 'UDP',
  endpoint: '10.0.0.1:80',
  failing: false,
  active: 1,
  connections: 1,
  bytesIn: 1,
  bytesOut: 1,
  errors: 1,
};

/** Every metric of a part of the page: type and labels, by name; the labels with their values. */
function familiesOf<Item>(families: Families<Item>, item: Item) {
  const text = [...exposition(families, [item], () => '')].join('').replaceAll('{,', '{');
  const { types, samples } = parseMetrics(text);
  return [...types].map(([name, type]) => {
    const labels = samples
      .filter((sample) => sample.name.replace(/_(bucket|sum|count)$/, '') === name)
      .flatMap((sample) => Object.entries(sample.labels).filter(([label]) => label !== 'le'));
    const values = labels.map(([, value]) => value);
    return { name, type, labels: [...new Set(labels.map(([label]) => label))], values };
  });
}

t.test('docs/reference/metrics.md has every metric with its type and labels', async (t) => {
  const sections = [
    ['Service ports', familiesOf(servicePortFamilies(), BUSY)],
    ['Endpoints', familiesOf(ENDPOINT_FAMILIES, ENDPOINT)],
  ] as const;
  for (const [section, metrics] of sections) {
    const documented = documentedMetrics(page, section);
    t.same(
      documented.map(({ name, type, labels }) => ({ name, type, labels })),
      metrics.map(({ name, type, labels }) => ({ name, type, labels })),
      'in this order',
    );
    for (const { name, values } of documented) {
      if (values === undefined || values.includes('(')) continue;
      t.same(metrics.find((each) => each.name === name)?.values, values.split(', '), name);
    }
  }
  const perItem = new Set(sections.flatMap(([, metrics]) => metrics.map(({ name }) => name)));
  const others = documentedMetrics(page)
    .filter(({ name }) => !perItem.has(name) && !/^(process|nodejs)_/.test(name))
    .map(({ name, type, labels }) => ({ name, type, labels: labels.toSorted() }));
  const table = Object.entries(metricTable()).map(([name, metric]) => {
    return { name, type: metric.type, labels: labelsOf(metric).sort() };
  });
  t.same(byName(others), byName(table));
  if (process.platform !== 'linux') return;
  const registry = new Registry();
  addProcessMetrics(registry);
  t.same(
    documentedMetrics(page)
      .map(({ name }) => name)
      .filter((name) => /^(process|nodejs)_/.test(name))
      .sort(),
    registry
      .getMetricsAsArray()
      .map(({ name }) => name)
      .sort(),
  );
});

function byName<T extends { readonly name: string }>(list: readonly T[]): T[] {
  return list.toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

const ROOT = join(import.meta.dirname, '..', '..');
const eventsPage = readFileSync(join(ROOT, 'docs/reference/events.md'), 'utf8');
const rows = listItems(eventsPage).map(({ names: [channel = ''], text }) => {
  const [when = '', fields = ''] = text.split('\n  ');
  return { channel, when, fields };
});

t.test('docs/reference/events.md has every channel and its fields', async (t) => {
  const channels = eventChannels();
  t.ok(channels.length > 50, `${channels.length} were found`);
  const actual = channels.map(({ channel, fields }) => {
    const code = fields.map(({ name, type }) => (type === 'string' ? name : `${name}: ${type}`));
    return `${channel}: ${code.map((each) => `\`${each}\``).join(', ')}`;
  });
  t.strictSame(rows.map(({ channel, fields }) => `${channel}: ${fields}`).sort(), actual.sort());
  t.equal(new Set(channels.map(({ channel }) => channel)).size, channels.length, 'no name twice');
  for (const { channel, when, fields } of rows) {
    t.match(when, /^[A-Z].*\.$/, channel);
    t.not(fields, '', channel);
  }
});
