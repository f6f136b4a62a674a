/** Responses of the admin API, formatted as text. */
import { drainText } from '../../proxier/drains.ts';
import type { DrainOutcome, StopOutcome } from '../../admin/changing.ts';
import type { EndpointView, ListenerView, ServiceDetails } from '../../admin/details.ts';
import type { ServiceRow, ServicesView } from '../../admin/services.ts';
import type {
  ConnectionsView,
  ConnectionView,
  ProxyView,
  SourceView,
  StatusView,
} from '../../admin/standard.ts';
import type { Traffic } from '../../observe/service-state.ts';
import type { Verdict } from '../../observe/verdict.ts';
import { pairs, table, type Column, age, atMost, bytes, count, counted } from './layout.ts';

/** A proxy that does not answer has nothing but a verdict. */
function statusText(status: StatusView | Pick<StatusView, 'health'>): string[] {
  if (!('process' in status)) return pairs(healthPairs(status.health));
  const { process: about, proxy, health } = status;
  const next = about.successor;
  return [
    ...pairs([
      ...healthPairs(health),
      [
        'process',
        `${about.pid}, up ${age(about.uptimeSeconds)}, ${bytes(about.rssBytes)} of memory`,
      ],
      ['new process', next === null ? '' : `process ${next} takes the new connections`],
      ['version', `${about.version}, Node ${about.node}, ${about.platform}`],
      ['command', about.command + (about.nodeName === null ? '' : `, node ${about.nodeName}`)],
      ['source', status.source === null ? '' : sourceText(status.source)],
      ['log level', String(status.logLevel)],
      ...(proxy === null ? [] : proxyPairs(proxy)),
    ]),
    ...problemLines(proxy?.problems ?? []),
  ];
}

/** The verdict, its reasons, and the health pages that answer 503. */
function healthPairs({ state, reasons, probes }: Verdict): [string, string][] {
  const failing = Object.entries(probes).filter(([, { status }]) => status !== 200);
  return [
    ['state', state],
    ...reasons.map(({ code, message }): [string, string] => ['', `${message} (${code})`]),
    ...failing.map(([probe, { status, failing: checks }]): [string, string] => {
      return [probe, `${status}: ${checks.join(', ')}`];
    }),
  ];
}

function sourceText({ name, connected, syncAgeSeconds }: SourceView): string {
  const sync = syncAgeSeconds === null ? 'no state yet' : `last change ${age(syncAgeSeconds)} ago`;
  return `${name}${connected ? '' : ', unreachable or invalid'}, ${sync}`;
}

function proxyPairs(proxy: ProxyView): [string, string][] {
  const { states, listeners, active, totals, limits, drains } = proxy;
  const notOk = Object.entries(states).flatMap(([state, number]) =>
    state !== 'ok' && number > 0 ? [`${number} ${state}`] : [],
  );
  const failed = listeners.failed > 0 ? `, ${listeners.failed} failed` : '';
  const held = active.held > 0 ? `, ${active.held} held` : '';
  return [
    ['engine', `${proxy.engine}, portal ${proxy.portal}`],
    ['service ports', [proxy.servicePorts, ...notOk].join(', ')],
    ['endpoints', String(proxy.endpoints)],
    ['listeners', `${listeners.open} open${failed}`],
    ['active', `${active.tcp} TCP connections, ${active.udp} UDP sessions${held}`],
    ['now', ratesText(proxy.rates)],
    [
      'total',
      `${count(totals.connections)} connections, ${bytes(totals.bytesIn)} in, ` +
        `${bytes(totals.bytesOut)} out, ${count(totals.errors)} errors`,
    ],
    ['limits', limits.map(({ limit, used, max }) => `${limit} ${used} of ${max}`).join(', ')],
    ['drained', drains.map(drainText).join(', ')],
  ];
}

function ratesText({ connections, bytesIn, bytesOut, errors }: Traffic): string {
  return (
    `${count(connections)} connections/s, ${bytes(bytesIn)}/s in, ${bytes(bytesOut)}/s out, ` +
    `${count(errors)} errors/s`
  );
}

function problemLines(problems: ProxyView['problems']): string[] {
  if (problems.length === 0) return [];
  return ['', 'Problems:', ...problems.map(({ code, message }) => `  ${message} (${code})`)];
}

const SERVICE_COLUMNS: readonly Column<ServiceRow>[] = [
  { title: 'SERVICE', cell: ({ name }) => name },
  { title: 'PROTO', cell: ({ protocol }) => protocol },
  { title: 'STATE', cell: ({ state }) => state },
  {
    title: 'ADDRESS',
    cell: ({ addresses: [first = '-', ...more] }) =>
      more.length === 0 ? first : `${first} +${more.length}`,
  },
  {
    title: 'ENDPOINTS',
    align: 'right',
    cell: ({ endpoints }) => `${endpoints.usable}/${endpoints.total}`,
  },
  { title: 'ACTIVE', align: 'right', cell: ({ active }) => count(active) },
  { title: 'CONN/S', align: 'right', cell: ({ rates }) => count(rates.connections) },
  { title: 'IN/S', align: 'right', cell: ({ rates }) => bytes(rates.bytesIn) },
  { title: 'OUT/S', align: 'right', cell: ({ rates }) => bytes(rates.bytesOut) },
  { title: 'ERRORS', align: 'right', cell: ({ totals }) => count(totals.errors) },
];

function servicesText({ rows, matched, total }: ServicesView): string[] {
  const lines = table(SERVICE_COLUMNS, rows);
  if (rows.length === matched && matched === total) return lines;
  const of = matched === total ? String(total) : `${matched} found, of ${total}`;
  return [...lines, '', `${rows.length} shown of ${of}`];
}

export const ENDPOINT_COLUMNS: readonly Column<EndpointView>[] = [
  { title: 'ENDPOINT', cell: ({ address }) => address },
  { title: 'STATE', cell: ({ state }) => state },
  { title: 'TRAFFIC', cell: ({ traffic }) => traffic.join(', ') || '-' },
  { title: 'ACTIVE', align: 'right', cell: ({ active }) => figure(active, count) },
  { title: 'TOTAL', align: 'right', cell: ({ connections }) => figure(connections, count) },
  { title: 'IN', align: 'right', cell: ({ bytesIn }) => figure(bytesIn, bytes) },
  { title: 'OUT', align: 'right', cell: ({ bytesOut }) => figure(bytesOut, bytes) },
  { title: 'CONNECT', align: 'right', cell: connectText },
  { title: 'ERRORS', align: 'right', cell: ({ errors }) => figure(errors, count) },
  { title: 'LAST ERROR', cell: lastErrorText },
];

/** A number that the engine may not know. */
function figure(value: number | undefined, format: (value: number) => string): string {
  return value === undefined ? '-' : format(value);
}

/** The time to connect to an endpoint: `0.8 ms`, `12 ms`, `1500 ms`. */
function connectText({ connectSeconds = null }: Partial<EndpointView>): string {
  if (connectSeconds === null) return '-';
  const ms = connectSeconds * 1000;
  return `${ms < 10 ? count(Math.round(ms * 10) / 10) : Math.round(ms)} ms`;
}

/** `refused 5s ago, failing for 1m30s`; empty: there was none. */
function lastErrorText({ lastError, failingSince }: Partial<EndpointView>): string {
  if (lastError === undefined || lastError === null) return '';
  const since = (time: string): string => age(Math.max(0, Date.now() - Date.parse(time)) / 1000);
  const failing = failingSince ? `, failing for ${since(failingSince)}` : '';
  return `${lastError.cause} ${since(lastError.at)} ago${failing}`;
}

const LISTENER_COLUMNS: readonly Column<ListenerView>[] = [
  { title: 'LISTENER', cell: ({ address }) => address },
  { title: 'STATE', cell: ({ state }) => state },
  { title: 'TRAFFIC', cell: ({ traffic }) => traffic },
  { title: 'WHY', cell: ({ code, cause }) => (code === undefined ? '' : `${code} ${cause ?? ''}`) },
];

function oneService(service: ServiceDetails): string[] {
  const { totals, connectTimes: times, affinity } = service;
  const errors = Object.entries(service.connectErrors).map(([cause, sum]) => `${sum} ${cause}`);
  const others = Object.entries(service.counters).map(([name, sum]) => `${inWords(name)} ${sum}`);
  return [
    ...pairs([
      ['service port', `${service.name} ${service.protocol}`],
      ['state', service.state],
      ['addresses', service.addresses.join(', ') || '-'],
      ['affinity', affinity === 'none' ? 'none' : `client IP, ${affinity.clientIP} s`],
      ['active', String(service.active)],
      ['now', ratesText(service.rates)],
      [
        'total',
        `${totals.connections} connections, ${bytes(totals.bytesIn)} in, ${bytes(totals.bytesOut)} out`,
      ],
      [
        'connect times',
        `50 % ${atMost(times.p50, times.count)}, 99 % ${atMost(times.p99, times.count)}`,
      ],
      ['connect errors', errors.join(', ') || 'none'],
      ['counted', others.join(', ') || 'nothing else'],
    ]),
    '',
    ...table(LISTENER_COLUMNS, service.listenersList),
    '',
    ...table(ENDPOINT_COLUMNS, service.endpointsList),
    ...problemLines(service.problems),
  ];
}

/** `rejectedNoEndpoint` as `rejected no endpoint`. */
function inWords(name: string): string {
  return name.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
}

const CONNECTION_COLUMNS: readonly Column<ConnectionView>[] = [
  { title: 'SERVICE', cell: ({ servicePort }) => servicePort },
  { title: 'PROTO', cell: ({ protocol }) => protocol },
  { title: 'CLIENT', cell: ({ client }) => client },
  { title: 'ENDPOINT', cell: ({ endpoint }) => endpoint },
  { title: 'STATE', cell: ({ state }) => state },
  { title: 'AGE', align: 'right', cell: ({ ageSeconds }) => age(ageSeconds) },
  { title: 'IN', align: 'right', cell: (row) => amount(row, row.in) },
  { title: 'OUT', align: 'right', cell: (row) => amount(row, row.out) },
];

/** Sessions are counted in datagrams. */
function amount({ protocol }: ConnectionView, value: number): string {
  return protocol === 'TCP' ? bytes(value) : `${count(value)} pkt`;
}

function connectionsText({ connections, matched, complete }: ConnectionsView): string[] {
  const lines = table(CONNECTION_COLUMNS, connections);
  if (complete && connections.length === matched) return lines;
  return [...lines, '', `${connections.length} shown of ${complete ? '' : 'more than '}${matched}`];
}

function drainedText({ what, servicePorts, active, inSeconds }: DrainOutcome): string[] {
  const numbers = `${counted(servicePorts, 'service port')}, ${counted(active, 'open connection')}`;
  if (inSeconds === undefined) return [`Draining ${what}: ${numbers}`];
  return [`Draining ${what} in ${inSeconds} s: ${numbers}; /healthz answers 503 from now on`];
}

/** The lines for the response of each operation. */
export const TEXTS = {
  status: statusText,
  services: servicesText,
  service: ({ services }: { readonly services: readonly ServiceDetails[] }) =>
    services.flatMap((each) => ['', ...oneService(each)]).slice(1),
  connections: connectionsText,
  drain: drainedText,
  undrain: ({ what, servicePorts }: DrainOutcome) => [
    `No longer draining ${what}: ${counted(servicePorts, 'service port')}`,
  ],
  loglevel: ({ level }: { level: number }) => [String(level)],
  stop: ({ pid, active }: StopOutcome) => [
    `Stopping process ${pid}: ${counted(active, 'open connection')}`,
  ],
  dump: (value: unknown) => [JSON.stringify(value)],
} as const satisfies Record<string, (value: never) => string[]>;
