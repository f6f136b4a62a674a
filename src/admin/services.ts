import type { DesiredServicePort } from '../proxier/wanted.ts';
import { errorsIn } from '../proxysocket/counters.ts';
import {
  type Facts,
  factsOf,
  failingOf,
  inTurns,
  noStates,
  partsOf,
  SERVICE_STATES,
  type ServiceState,
  snapshotParts,
  totalsOf,
} from '../observe/service-state.ts';
import type { Sampler } from './sampler.ts';
import { formatHostPort } from '../util/host-port.ts';
import type { ProxySubject } from './subject.ts';

export const SORT_KEYS = [
  'name',
  'state',
  'active',
  'connections',
  'in',
  'out',
  'errors',
  'endpoints',
] as const;
export type SortKey = (typeof SORT_KEYS)[number];

/** Maximum number of service ports on one page. */
export const MAX_ROWS = 1000;

export interface ServicesQuery {
  /** Words that the name or an address must contain, in any case. */
  readonly search: string;
  /** Only this state; `traffic`: with traffic now; `problems`: every state except the good ones. */
  readonly state: ServiceState | 'all' | 'traffic' | 'problems';
  readonly sort: SortKey;
  readonly reverse: boolean;
  readonly offset: number;
  readonly limit: number;
}

/** One service port in a list. */
export type ServiceRow = ReturnType<typeof rowOf>;

/** A page of service ports. */
export type ServicesView = Awaited<ReturnType<typeof listServices>>;

/**
 * A page of the service ports, found and sorted here so that a reader only gets what it shows. `states`: of all
 * service ports; `matched`: those that match the search and the state. Rejects with the signal's reason when that aborts.
 */
export async function listServices(
  subject: ProxySubject,
  rates: Sampler,
  query: ServicesQuery,
  signal?: AbortSignal,
) {
  const failing = await failingOf(subject.engine);
  const states = noStates();
  const words = query.search.toLowerCase().split(/\s+/).filter(Boolean);
  const list = subject.desired();
  const addresses = words.length === 0 ? undefined : named(list);
  const entries: Facts[] = [];
  let total = 0;
  for await (const part of inTurns(snapshotParts(subject.engine), signal)) {
    total += part.length;
    for (const snapshot of part) {
      const entry = factsOf(snapshot, subject.proxier, failing);
      states[entry.state] += 1;
      if (!isWanted(entry, query.state, rates)) continue;
      if (addresses === undefined || matches(words, snapshot.name, addresses)) entries.push(entry);
    }
  }
  sortEntries(entries, query, rates);
  const page = entries.slice(query.offset, query.offset + query.limit);
  const shown = new Set(page.map(({ snapshot }) => snapshot.name));
  const desired = named(list.filter(({ spec }) => shown.has(spec.name)));
  const rows: ServiceRow[] = [];
  for await (const part of inTurns(partsOf(page), signal)) {
    rows.push(...part.map((entry) => rowOf(entry, desired.get(entry.snapshot.name), rates)));
  }
  return { total, matched: entries.length, offset: query.offset, rows, states };
}

/** The addresses that clients use, a node port as `*:port`. */
export function addressesOf(port: DesiredServicePort | undefined): string[] {
  return (port?.portals ?? []).map(({ address, port: number }) =>
    address === undefined ? `*:${number}` : formatHostPort({ host: address, port: number }),
  );
}

export function rowOf(entry: Facts, desired: DesiredServicePort | undefined, rates: Sampler) {
  const { snapshot, state, failedListeners: failed } = entry;
  const { name, protocol, counters, listeners, endpoints } = snapshot;
  const spark = rates.sparkOf(name);
  return {
    name,
    protocol,
    state,
    addresses: addressesOf(desired),
    endpoints: { total: endpoints, usable: acceptingOf(entry) },
    listeners: { open: listeners.length - failed, failed },
    active: counters.active,
    totals: totalsOf(counters),
    rates: rates.ratesOf(name),
    ...(spark !== undefined && { spark }),
  };
}

function acceptingOf({ usable, failing }: Facts): number {
  return usable - failing;
}

function isWanted(
  { snapshot, state }: Facts,
  wanted: ServicesQuery['state'],
  rates: Sampler,
): boolean {
  if (wanted === 'all') return true;
  if (wanted === 'problems') return state !== 'ok';
  if (wanted !== 'traffic') return state === wanted;
  if (snapshot.counters.active > 0) return true;
  const { connections, bytesIn, bytesOut, errors } = rates.ratesOf(snapshot.name);
  return connections + bytesIn + bytesOut + errors > 0;
}

type Named = ReadonlyMap<string, DesiredServicePort>;

export function named(list: readonly DesiredServicePort[]): Named {
  return new Map(list.map((port) => [port.spec.name, port]));
}

/** Names are in lower case. Addresses are formatted only for words that the name does not contain. */
function matches(words: readonly string[], name: string, desired: Named): boolean {
  const missing = words.filter((word) => !name.includes(word));
  if (missing.length === 0) return true;
  const addresses = addressesOf(desired.get(name));
  return missing.every((word) => addresses.some((address) => address.includes(word)));
}

/** Numbers descending, names ascending, states from the worst on; ties by name. */
function sortEntries(entries: Facts[], { sort, reverse }: ServicesQuery, rates: Sampler): void {
  const sign = reverse ? -1 : 1;
  const byName = (a: Facts, b: Facts): number => (a.snapshot.name < b.snapshot.name ? -1 : 1);
  const values = new Map(entries.map((entry) => [entry, valueOf(entry, sort, rates)]));
  const value = (entry: Facts): number => values.get(entry) ?? 0;
  const tie = sort === 'name' ? sign : 1;
  entries.sort((a, b) => sign * (value(b) - value(a)) || tie * byName(a, b));
}

function valueOf(entry: Facts, sort: SortKey, rates: Sampler): number {
  const { snapshot } = entry;
  if (sort === 'name') return 0;
  if (sort === 'state') return -SERVICE_STATES.indexOf(entry.state);
  if (sort === 'active') return snapshot.counters.active;
  // What the columns show: `usable/total`, the total of errors, and rates of traffic.
  if (sort === 'endpoints') return acceptingOf(entry) + snapshot.endpoints * 1e-9;
  if (sort === 'errors') return errorsIn(snapshot.counters);
  const { connections, bytesIn, bytesOut } = rates.ratesOf(snapshot.name);
  return { connections, in: bytesIn, out: bytesOut }[sort];
}

const COLUMNS: readonly (readonly [string, (row: ServiceRow) => string | number])[] = [
  ['service', ({ name }) => name],
  ['protocol', ({ protocol }) => protocol],
  ['state', ({ state }) => state],
  ['addresses', ({ addresses }) => addresses.join(' ')],
  ['endpoints_usable', ({ endpoints }) => endpoints.usable],
  ['endpoints_total', ({ endpoints }) => endpoints.total],
  ['listeners_open', ({ listeners }) => listeners.open],
  ['listeners_failed', ({ listeners }) => listeners.failed],
  ['active', ({ active }) => active],
  ['connections', ({ totals }) => totals.connections],
  ['bytes_in', ({ totals }) => totals.bytesIn],
  ['bytes_out', ({ totals }) => totals.bytesOut],
  ['errors', ({ totals }) => totals.errors],
  ['connections_per_second', ({ rates }) => rates.connections],
  ['bytes_in_per_second', ({ rates }) => rates.bytesIn],
  ['bytes_out_per_second', ({ rates }) => rates.bytesOut],
  ['errors_per_second', ({ rates }) => rates.errors],
];

/** Service ports as CSV (RFC 4180), in pieces. */
export async function* csvOf(rows: readonly ServiceRow[]): AsyncGenerator<string> {
  yield lineOf(COLUMNS.map(([title]) => title));
  for (const part of partsOf(rows)) {
    yield part.map((row) => lineOf(COLUMNS.map(([, value]) => value(row)))).join('');
  }
}

function lineOf(values: readonly (string | number)[]): string {
  return `${values.map(cell).join(',')}\r\n`;
}

/** A spreadsheet would treat text that begins with one of these characters as a formula. */
const FORMULA = /^[=+\-@\t\r]/;

function cell(value: string | number): string {
  if (typeof value === 'number') return String(value);
  const text = FORMULA.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
