/** What the source code says about its diagnostics channels. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Registry } from 'prom-client';
import t from 'tap';
import { exposition, type Family } from '../../src/observe/exposition.ts';
import { PROCESS_METRICS } from '../../src/observe/metric-table.ts';
import { addProcessMetrics } from '../../src/observe/metrics.ts';
import {
  ENDPOINT_FAMILIES,
  servicePortFamilies,
  type CountedEndpoint,
} from '../../src/observe/service-port-metrics.ts';
import { newCounters, type ServicePortCounters } from '../../src/proxysocket/counters.ts';
import type { ListenerStatus } from '../../src/proxysocket/spec.ts';
import { documentedMetrics, listItems } from '../support/markdown.ts';
import { measuredPort, parseMetrics } from '../support/metrics-page.ts';

const SRC = join(import.meta.dirname, '..', '..', 'src');

const CHANNEL = /export const \w+ = typedChannel<(\w+|\{[^]*?\})>\(\s*'([^']+)',?\s*\)/g;

/** Every channel of src/ with the fields of its events, as the page has them. */
function eventChannels(): { readonly channel: string; readonly fields: string }[] {
  const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' }).filter(
    (path) => path.endsWith('.ts') && path !== join('util', 'channel.ts'),
  );
  return files.flatMap((file) => {
    const source = readFileSync(join(SRC, file), 'utf8');
    return [...source.matchAll(CHANNEL)].map(([, type = '', name = '']) => {
      const fields = fieldsOf(type, source).map((field) => `\`${field}\``);
      return { channel: `kpng-userspace:${name}`, fields: fields.join(', ') };
    });
  });
}

/** The fields of a type, of which there is the name or the text, and their types unless they are texts. */
function fieldsOf(type: string, source: string): string[] {
  if (type.startsWith('{')) return fieldsIn(type.slice(1, -1));
  const alias = new RegExp(`^(?:export )?type ${type} = (\\w+);`, 'm').exec(source)?.[1];
  if (alias !== undefined) return fieldsOf(alias, source);
  const head = `^(?:export )?interface ${type}(?: extends (\\w+))? \\{\n([^]*?)\n\\}`;
  const [found, parent, body = ''] = new RegExp(head, 'm').exec(source) ?? [];
  if (found === undefined) throw new Error(`${type} is not in this file`);
  return [...(parent === undefined ? [] : fieldsOf(parent, source)), ...fieldsIn(body)];
}

function fieldsIn(body: string): string[] {
  const fields = body.replaceAll(/\/\*\*[^]*?\*\//g, '').split(/;(?![^{}]*\})/);
  return fields.flatMap((field) => {
    const [, name = '', optional, options = ''] = /^\s*(\w+)(\??):\s+([^]*)$/.exec(field) ?? [];
    const one = options.replaceAll(/\s+/g, ' ').replace(/^\| /, '').trim();
    if (optional === '' && one === 'string') return name;
    return name === '' ? [] : `${name}: ${one}${optional === '' ? '' : ' | undefined'}`;
  });
}

const REFERENCE = join(SRC, '..', 'docs', 'reference');
const page = readFileSync(join(REFERENCE, 'metrics.md'), 'utf8');

/** A service port that has something of everything: 1 in place of each number. */
const BUSY = measuredPort(
  'ns/svc:port',
  JSON.parse(JSON.stringify(newCounters()).replaceAll(/\b0\b/g, '1')) as ServicePortCounters,
  { protocol: 'UDP', listeners: [{ state: 'failed' } as ListenerStatus] },
);

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
function familiesOf<Item>(families: readonly Family<Item>[], item: Item) {
  const text = [...exposition(families, [item], () => '')].join('');
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
    const [found, expected] = [documented, metrics].map((all) =>
      all.map(({ name, type, labels }) => ({ name, type, labels })),
    );
    t.same(found, expected, 'in this order');
    for (const { name, values } of documented) {
      if (values === undefined || values.includes('(')) continue;
      t.same(metrics.find((each) => each.name === name)?.values, values.split(', '), name);
    }
  }
  const perItem = new Set(sections.flatMap(([, metrics]) => metrics.map(({ name }) => name)));
  const others = documentedMetrics(page).filter(
    ({ name }) => !perItem.has(name) && !isOfLibrary(name),
  );
  t.same(textsOf(others), textsOf(Object.values(PROCESS_METRICS)));
  if (process.platform !== 'linux') return;
  const registry = new Registry();
  addProcessMetrics(registry);
  const library = documentedMetrics(page).filter(({ name }) => isOfLibrary(name));
  const names = (all: readonly { name: string }[]) => new Set(all.map(({ name }) => name));
  t.same(names(library), names(registry.getMetricsAsArray()));
});

function isOfLibrary(name: string): boolean {
  return /^(process|nodejs)_/.test(name) && name !== 'process_open_fds';
}

function textsOf(
  metrics: readonly { name: string; type: string; labels: readonly string[] }[],
): string[] {
  return metrics.map(({ name, type, labels }) => [name, type, ...labels.toSorted()].join()).sort();
}

const eventsPage = readFileSync(join(REFERENCE, 'events.md'), 'utf8');
const rows = listItems(eventsPage).map(({ names: [channel = ''], text }) => {
  const [when = '', fields = ''] = text.split('\n  ');
  return { channel, when, fields };
});

t.test('docs/reference/events.md has every channel and its fields', async (t) => {
  const channels = eventChannels();
  t.ok(channels.length > 50, `${channels.length} were found`);
  const listed = (of: typeof channels): string[] =>
    of.map(({ channel, fields }) => `${channel}: ${fields}`).sort();
  t.strictSame(listed(rows), listed(channels));
  t.equal(new Set(channels.map(({ channel }) => channel)).size, channels.length, 'no name twice');
  for (const { channel, when, fields } of rows) {
    t.match(when, /^[A-Z].*\.$/, channel);
    t.not(fields, '', channel);
  }
});
