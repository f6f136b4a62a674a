import { stat } from 'node:fs/promises';
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { ServicePortSnapshot } from '../proxysocket/engine.ts';
import { limitChanged } from '../proxysocket/events.ts';
import { type EngineLimits, LIMIT_NAMES } from '../proxysocket/limits.ts';
import type { Subscriptions } from '../util/channel.ts';

interface Row<Kind extends string> {
  readonly kind: Kind;
  readonly help: string;
  readonly labelNames: readonly string[];
  readonly buckets?: number[];
}

type Metric<Kind> = Kind extends 'counter' ? Counter : Kind extends 'gauge' ? Gauge : Histogram;

export function counter(help: string, ...labelNames: string[]): Row<'counter'> {
  return { kind: 'counter', help, labelNames };
}

export function gauge(help: string, ...labelNames: string[]): Row<'gauge'> {
  return { kind: 'gauge', help, labelNames };
}

/** `buckets`: upper bounds, in the unit of the metric. */
export function histogram(help: string, buckets: number[]): Row<'histogram'> {
  return { kind: 'histogram', help, labelNames: [], buckets };
}

/** Registers the metrics of a table, and returns them by their names. */
export function registerTable<const Table extends Readonly<Record<string, Row<string>>>>(
  registry: Registry,
  table: Table,
): { readonly [Name in keyof Table]: Metric<Table[Name]['kind']> } {
  const metrics = Object.entries(table).map(([name, { kind, help, labelNames, buckets }]) => {
    const options = { name, help, labelNames, registers: [registry] };
    if (kind === 'counter') return [name, new Counter(options)];
    if (kind === 'gauge') return [name, new Gauge(options)];
    return [name, new Histogram({ ...options, ...(buckets !== undefined && { buckets }) })];
  });
  return Object.fromEntries(metrics);
}

const TABLE = {
  kpng_userspace_limit: gauge(
    'The limits, by the name of their flag. Times in seconds, sizes in bytes.',
    'limit',
  ),
  kpng_userspace_limit_used: gauge('How much of a limit is used now.', 'limit'),
  kpng_userspace_limit_reached_total: counter('Times that a limit was reached.', 'limit'),
};

/** Registers the metrics of the limits. Returns a function that updates them for a scrape. */
export function addLimitMetrics(
  registry: Registry,
  subscriptions: Subscriptions,
  limits: EngineLimits,
): (servicePorts: readonly ServicePortSnapshot[]) => void {
  const all = registerTable(registry, TABLE);
  subscriptions.on(limitChanged, ({ limit, reached }) => {
    if (reached) all.kpng_userspace_limit_reached_total.inc({ limit });
  });
  return (servicePorts) => {
    // Some limits may change while the program runs.
    for (const [key, limit] of Object.entries(LIMIT_NAMES)) {
      all.kpng_userspace_limit.set({ limit }, baseUnits(key, limits[key as keyof EngineLimits]));
    }
    const used = { TCP: 0, UDP: 0, held: 0 };
    for (const { protocol, counters } of servicePorts) {
      used[protocol] += counters.active;
      used.held += counters.held;
    }
    const set = (limit: string, value: number): void =>
      all.kpng_userspace_limit_used.set({ limit }, value);
    set(LIMIT_NAMES.maxConnections, used.TCP + used.held);
    set(LIMIT_NAMES.maxHeldConnections, used.held);
    set(LIMIT_NAMES.maxUdpSessions, used.UDP);
  };
}

/** Milliseconds as seconds; a list of times as their sum. */
function baseUnits(key: string, value: number | readonly number[]): number {
  const total = typeof value === 'number' ? value : value.reduce((sum, each) => sum + each, 0);
  return key.endsWith('Ms') ? total / 1000 : total;
}

/**
 * prom-client's default metrics with constant cost. Left out are those that list every handle or descriptor: with a
 * hundred thousand connections they would stop the event loop at each scrape.
 */
const PROCESS_METRICS = [
  'process_cpu_user_seconds_total',
  'process_cpu_system_seconds_total',
  'process_cpu_seconds_total',
  'process_start_time_seconds',
  'process_resident_memory_bytes',
  'process_virtual_memory_bytes',
  'process_heap_bytes',
  'process_max_fds',
  'nodejs_eventloop_lag_seconds',
  'nodejs_eventloop_lag_min_seconds',
  'nodejs_eventloop_lag_max_seconds',
  'nodejs_eventloop_lag_mean_seconds',
  'nodejs_eventloop_lag_stddev_seconds',
  'nodejs_eventloop_lag_p50_seconds',
  'nodejs_eventloop_lag_p90_seconds',
  'nodejs_eventloop_lag_p99_seconds',
  'nodejs_heap_size_total_bytes',
  'nodejs_heap_size_used_bytes',
  'nodejs_external_memory_bytes',
  'nodejs_version_info',
  'nodejs_gc_duration_seconds',
] as const;

/** Interval of measuring the event loop lag. Milliseconds. */
const LAG_PRECISION_MS = 20;

/** Adds the metrics of this process to a registry, as far as the system provides them. */
export function addProcessMetrics(registry: Registry): void {
  const everything = new Registry();
  collectDefaultMetrics({ register: everything, eventLoopMonitoringPrecision: LAG_PRECISION_MS });
  for (const name of PROCESS_METRICS) {
    const metric = everything.getSingleMetric(name);
    if (metric !== undefined) registry.registerMetric(metric);
  }
  registry.registerMetric(
    new Gauge({
      name: 'process_open_fds',
      help: 'Number of open file descriptors; absent where the system does not count them.',
      registers: [],
      async collect() {
        const count = await openDescriptors();
        if (count !== undefined) this.set(count);
      },
    }),
  );
}

/**
 * Since Linux 6.2 the size of this directory is the number of open descriptors. Before that it is 0, and listing them
 * would be too expensive.
 */
async function openDescriptors(): Promise<number | undefined> {
  try {
    const { size } = await stat('/proc/self/fd');
    return size > 0 ? size : undefined;
  } catch {
    return undefined;
  }
}
