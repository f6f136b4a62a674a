/** What the source code says about its diagnostics channels. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { ENDPOINT_FAMILIES } from '../../src/observe/endpoint-metrics.ts';
import { createMetrics } from '../../src/observe/metrics.ts';
import { bindFailureLog } from '../../src/observe/servers.ts';
import { SERVICE_PORT_FAMILIES } from '../../src/observe/service-port-metrics.ts';
import { newCounters } from '../../src/proxysocket/counters.ts';
import type { ServicePortSnapshot } from '../../src/proxysocket/engine.ts';
import { type EndpointSnapshot, NOTHING } from '../../src/proxysocket/inspect.ts';
import { DEFAULT_LIMITS } from '../../src/proxysocket/limits.ts';
import { captureLog } from '../support/captured-log.ts';
import { documentedMetrics, listItems } from '../support/markdown.ts';
import { scrapePage, type MetricsPage } from '../support/metrics-page.ts';
import { until } from '../support/until.ts';

const SRC = join(import.meta.dirname, '..', '..', 'src');

interface EventField {
  readonly name: string;
  readonly type: string;
}

interface EventChannel {
  /** With the prefix that all have. */
  readonly channel: string;
  /** The folder of src/ that publishes on it. */
  readonly folder: string;
  /** The comment of the event's type. */
  readonly meaning: string;
  readonly fields: readonly EventField[];
}

interface Shape {
  readonly meaning: string;
  readonly fields: readonly EventField[];
  /** Another type that it has the fields of, too. */
  readonly parent: string | undefined;
}

const CHANNEL = /export const \w+ = typedChannel<(\w+)>\(\s*'([^']+)',?\s*\)/g;
const SHAPE =
  /(?:\/\*\*((?:(?!\*\/)[^])*)\*\/\n)?(?:export )?(?:interface (\w+)(?: extends (\w+))? \{\n([^]*?)\n\}|type (\w+) = (\w+);)/g;
const FIELD = /^ {2}(\w+)(\??):\s+([^]*?);$/gm;

/** Every channel of src/, by folder and in the order of the code. */
function eventChannels(): EventChannel[] {
  const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.ts') && path !== join('util', 'channel.ts'))
    .sort();
  return files.flatMap((file) => {
    const text = readFileSync(join(SRC, file), 'utf8');
    const shapes = shapesOf(text);
    return [...text.matchAll(CHANNEL)].map(([, type = '', name = '']): EventChannel => {
      const shape = shapes.get(type);
      if (shape === undefined) throw new Error(`${file}: ${type} of ${name} is not in this file`);
      const [folder = ''] = file.split(/[\\/]/);
      const channel = `kpng-userspace:${name}`;
      return { channel, folder, meaning: shape.meaning, fields: fieldsOf(type, shapes) };
    });
  });
}

function shapesOf(text: string): ReadonlyMap<string, Shape> {
  const shapes = new Map<string, Shape>();
  for (const [, comment = '', name, parent, body = '', alias, aliased] of text.matchAll(SHAPE)) {
    const meaning = plain(comment);
    const bare = body.replaceAll(/\/\*\*[^]*?\*\//g, '');
    const fields = [...bare.matchAll(FIELD)].map(([, field = '', optional = '', type = '']) => {
      const options = type.replaceAll(/\s+/g, ' ').replace(/^\| /, '');
      return { name: field, type: optional === '' ? options : `${options} | undefined` };
    });
    if (name !== undefined) shapes.set(name, { meaning, fields, parent });
    else if (alias !== undefined) shapes.set(alias, { meaning, fields: [], parent: aliased });
  }
  return shapes;
}

function fieldsOf(type: string, shapes: ReadonlyMap<string, Shape>): EventField[] {
  const shape = shapes.get(type);
  if (shape === undefined) throw new Error(`${type} is not in this file`);
  const inherited = shape.parent === undefined ? [] : fieldsOf(shape.parent, shapes);
  return [...inherited, ...shape.fields];
}

/** The text of a comment, lists left out, in one line. */
function plain(comment: string): string {
  return comment
    .replaceAll(/^\s*\* ?/gm, '')
    .replace(/\n- [^]*$/, '')
    .replaceAll(/\s+/g, ' ')
    .trim();
}

const page = readFileSync(
  join(import.meta.dirname, '..', '..', 'docs/reference/metrics.md'),
  'utf8',
);

/** Metrics that not every system has. */
const OPTIONAL = new Set([
  'process_open_fds',
  'process_max_fds',
  'process_virtual_memory_bytes',
  'process_heap_bytes',
]);

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
  counters: {
    ...newCounters(),
    datagramsDropped: 1,
    sessionsEvicted: 1,
    retries: 1,
    rejectedNoEndpoint: 1,
    rejectedDrained: 1,
    rejectedConnectFailed: 1,
    rejectedLimit: 1,
    rejectedSource: 1,
    rejectedHoldTimeout: 1,
    rejectedProxyHeader: 1,
    held: 1,
    heldTotal: 1,
    halfCloseTimeouts: 1,
    idleTimeouts: 1,
    connectErrors: {
      refused: 1,
      timeout: 1,
      unreachable: 1,
      reset: 1,
      loop: 1,
      limit: 1,
      other: 1,
    },
    connectSeconds: { counts: newCounters().connectSeconds.counts.map(() => 1), sum: 1 },
  },
};

const ENDPOINT: EndpointSnapshot = {
  servicePort: BUSY.name,
  endpoint: '10.0.0.1:80',
  active: 1,
  connections: 1,
  bytesIn: 1,
  bytesOut: 1,
  errors: 1,
  failing: false,
};

async function scrape(t: { teardown(end: () => void): void }): Promise<MetricsPage> {
  const metrics = createMetrics({ version: '0', perEndpoint: true });
  t.teardown(() => metrics.close());
  metrics.observe({
    engine: 'node',
    portal: 'none',
    limits: DEFAULT_LIMITS,
    snapshot: () => [BUSY],
    inspect: async () => ({ ...NOTHING, endpoints: [ENDPOINT] }),
    problems: () => [{ code: 'KPNG_LISTEN_FAILED', count: 1 }],
  });
  return await scrapePage(metrics);
}

t.test(
  'every metric is in docs/reference/metrics.md with its type, and every one there exists',
  async (t) => {
    const { types } = await scrape(t);
    const onPage = new Map(documentedMetrics(page).map(({ name, type }) => [name, type]));
    for (const [name, type] of types) t.equal(onPage.get(name), type, name);
    for (const name of onPage.keys()) t.ok(types.has(name) || OPTIONAL.has(name), name);
  },
);

t.test('every label is documented, and every documented one exists', async (t) => {
  const { samples } = await scrape(t);
  for (const { name, labels } of documentedMetrics(page)) {
    const found = new Set(
      samples
        .filter((sample) => sample.name.replace(/_(bucket|sum|count)$/, '') === name)
        .flatMap((sample) => Object.keys(sample.labels)),
    );
    // Counters with labels have no sample before the first event.
    if (found.size === 0) continue;
    const servicePort = ['namespace', 'service', 'port', 'protocol'];
    const common = SERVICE_PORT_FAMILIES.some((family) => family.name === name)
      ? servicePort
      : ENDPOINT_FAMILIES.some((family) => family.name === name)
        ? [...servicePort, 'endpoint']
        : [];
    found.delete('le');
    t.same([...found].sort(), [...common, ...labels].sort(), name);
  }
});

t.test('the values of the labels are those on the page', async (t) => {
  const { samples } = await scrape(t);
  for (const { name, labels, values } of documentedMetrics(page, 'Service ports')) {
    const [label = ''] = labels;
    if (values === undefined || label === 'direction') continue;
    const found = samples
      .filter((sample) => sample.name === name)
      .map((sample) => sample.labels[label] ?? '');
    t.same(found.sort(), values.split(', ').sort(), name);
  }
});

t.test('the metrics of service ports come in the order of the page', (t) => {
  t.same(
    documentedMetrics(page, 'Service ports').map(({ name }) => name),
    SERVICE_PORT_FAMILIES.map(({ name }) => name),
  );
  t.end();
});

const ROOT = join(import.meta.dirname, '..', '..');
const eventsPage = readFileSync(join(ROOT, 'docs/reference/events.md'), 'utf8');
const rows = listItems(eventsPage).map(({ names: [channel = ''], text }) => {
  const [when = '', fields = ''] = text.split('\n  ');
  return { channel, when, fields };
});

t.test('every channel is in docs/reference/events.md, and every one there exists', async (t) => {
  const channels = eventChannels();
  t.ok(channels.length > 50, `${channels.length} were found`);
  t.same(rows.map(({ channel }) => channel).sort(), channels.map(({ channel }) => channel).sort());
  t.equal(new Set(channels.map(({ channel }) => channel)).size, channels.length, 'no name twice');
});

t.test('every channel has its fields there, with their types, and says when', async (t) => {
  const documented = new Map(rows.map((row) => [row.channel, row]));
  for (const { channel, fields } of eventChannels()) {
    const code = fields
      .map(({ name, type }) => (type === 'string' ? `\`${name}\`` : `\`${name}: ${type}\``))
      .join(', ');
    t.ok(fields.length > 0, channel);
    t.equal(documented.get(channel)?.fields, code, channel);
    t.match(documented.get(channel)?.when, /^[A-Z].*\.$/, channel);
  }
});

t.test('an address that stays taken is reported once, and again when another has it', async (t) => {
  const { log, lines } = await captureLog();
  let program = 'one';
  const holderOf = async () => ({ program, pid: 7, user: 0 });
  const failed = bindFailureLog(log, 'Cannot serve', { host: '127.0.0.1', port: 1 }, holderOf);
  const cause = Object.assign(new Error('taken'), { code: 'EADDRINUSE' });
  for (const retryInMs of [1000, 2000, 4000]) failed(cause, retryInMs);
  program = 'another';
  for (const retryInMs of [8000, 16_000]) failed(cause, retryInMs);
  program = 'a third';
  failed(cause, 30_000);
  await until(() => lines().some(({ retryInMs }) => retryInMs === 30_000));
  t.equal(lines().length, 3);
  t.match(lines(), [
    { level: 'warn', msg: 'Cannot serve', address: '127.0.0.1:1', err: /one/, retryInMs: 1000 },
    { code: 'KPNG_LISTEN_ADDRESS_IN_USE', err: /another/, retryInMs: 8000 },
    { err: /a third/ },
  ]);
});
