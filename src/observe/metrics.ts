import { stat } from 'node:fs/promises';
import {
  collectDefaultMetrics,
  Counter,
  exponentialBuckets,
  Gauge,
  Histogram,
  linearBuckets,
  Registry,
} from 'prom-client';
import type { Engine, ServicePortSnapshot } from '../proxysocket/engine.ts';
import { type EngineLimits, LIMIT_NAMES } from '../proxysocket/limits.ts';
import { eventMetrics, type RecordMetric, type Sample } from './event-metrics.ts';
import { inTurns, snapshotParts } from './service-state.ts';
import { exposition, familiesIn, type TextFormat } from './exposition.ts';
import { HEALTH_STATES, REASON_CODES, type Verdict } from './verdict.ts';
import type { ProxyHealth } from './health.ts';
import { PROCESS_METRICS, type ProcessMetric } from './metric-table.ts';
import {
  ENDPOINT_FAMILIES,
  endpointLabels,
  exemplarsOf,
  servicePortFamilies,
  servicePortLabels,
  usedEndpoints,
} from './service-port-metrics.ts';
import { Subscriptions } from '../util/channel.ts';

export interface MeasuredDataPath extends Pick<ProxyHealth, 'problems'> {
  readonly engine: Required<Pick<Engine, 'kind' | 'names' | 'snapshot' | 'inspect'>>;
  readonly portal: string;
  readonly limits: EngineLimits;
}

export interface MetricsOptions {
  readonly version: string;
  /** Whether each endpoint has series. */
  readonly perEndpoint?: boolean;
  /** Whether OpenMetrics pages name the endpoint that failed last. Default: no. */
  readonly exemplars?: boolean;
  /** The health of the process. Default: not shown. */
  readonly verdict?: () => Promise<Verdict>;
}

export type Metrics = ReturnType<typeof createMetrics>;

/** What the snapshots are read from. */
interface Facts extends Pick<MetricsOptions, 'version' | 'verdict'> {
  /** Undefined until there is one. */
  dataPath?: MeasuredDataPath;
  servicePorts: readonly ServicePortSnapshot[];
}

/** Gauges that are read for each scrape; equal labels add up. */
type Snapshots = Partial<Record<ProcessMetric, () => readonly Sample[] | Promise<Sample[]>>>;

function snapshotsOf(facts: Facts): Snapshots {
  return {
    problems: () => (facts.dataPath?.problems() ?? []).map(({ code, count }) => [count, { code }]),
    limit: () => limitSamples(facts),
    limit_used: () => useSamples(facts),
    async health() {
      const verdict = await facts.verdict?.();
      const states = new Map(verdict?.reasons.map(({ code, state }) => [code, state]));
      return (verdict === undefined ? [] : REASON_CODES).map((reason) => {
        return [HEALTH_STATES.indexOf(states.get(reason) ?? 'ready'), { reason }];
      });
    },
    process_open_fds: openDescriptors,
    build_info() {
      const { engine: { kind: engine } = { kind: '' }, portal = '' } = facts.dataPath ?? {};
      return [[1, { version: facts.version, node: process.versions.node, engine, portal }]];
    },
  };
}

/** Times in seconds; a list of times as their sum. */
function limitSamples({ dataPath }: Facts): Sample[] {
  if (dataPath === undefined) return [];
  const { limits } = dataPath;
  return Object.entries(LIMIT_NAMES).map(([key, limit]) => {
    const value = [limits[key as keyof EngineLimits]].flat().reduce((sum, each) => sum + each, 0);
    return [key.endsWith('Ms') ? value / 1000 : value, { limit }];
  });
}

function useSamples({ dataPath, servicePorts }: Facts): Sample[] {
  if (dataPath === undefined) return [];
  const used = { TCP: 0, UDP: 0, held: 0 };
  for (const { protocol, counters } of servicePorts) {
    used[protocol] += counters.active;
    used.held += counters.held;
  }
  return [
    [used.TCP + used.held, { limit: LIMIT_NAMES.maxConnections }],
    [used.held, { limit: LIMIT_NAMES.maxHeldConnections }],
    [used.UDP, { limit: LIMIT_NAMES.maxUdpSessions }],
  ];
}

/** kube-proxy's buckets. Seconds. */
const BUCKETS: Partial<Record<ProcessMetric, number[]>> = {
  kubeproxy_sync_proxy_rules_duration_seconds: exponentialBuckets(0.001, 2, 15),
  // Two quarters of a second, each second of a minute, then coarser up to 5 minutes.
  kubeproxy_network_programming_duration_seconds: [
    ...linearBuckets(0.25, 0.25, 2),
    ...linearBuckets(1, 1, 59),
    ...linearBuckets(60, 5, 12),
    ...linearBuckets(120, 30, 7),
  ],
};

/** Registers the metrics of the process. Returns a function that records a value of one of them. */
export function register(registry: Registry, snapshots: Snapshots = {}): RecordMetric {
  const metrics = new Map<string, Counter | Gauge | Histogram>();
  for (const [key, { type, name, help, labels: labelNames }] of Object.entries(PROCESS_METRICS)) {
    const { [key as ProcessMetric]: read } = snapshots;
    const options = { name, help, labelNames, registers: [registry] };
    const collect = async function (this: Gauge): Promise<void> {
      if (read === undefined) return;
      const samples = await read();
      // All at once, as another scrape may be waiting for its samples.
      this.reset();
      for (const [value, labels = {}] of samples) this.inc(labels, value);
    };
    const buckets = BUCKETS[key as ProcessMetric] ?? [];
    if (type === 'counter') metrics.set(key, new Counter(options));
    else if (type === 'gauge') metrics.set(key, new Gauge({ ...options, collect }));
    else metrics.set(key, new Histogram({ ...options, buckets }));
  }
  return (name, value, labels = {}) => {
    const metric = metrics.get(name);
    if (metric instanceof Counter) metric.inc(labels, value);
    else if (metric instanceof Gauge) metric.set(labels, value);
    else metric?.observe(labels, value);
  };
}

/** Creates the metrics. Those of the data path appear once there is one. */
export function createMetrics(options: MetricsOptions) {
  const registry = new Registry();
  const subscriptions = new Subscriptions();
  addProcessMetrics(registry);
  const facts: Facts = { ...options, servicePorts: [] };
  const { subscribe, sourceAges } = eventMetrics();
  const snapshots = { ...snapshotsOf(facts), source_last_event_age_seconds: sourceAges };
  const record = register(registry, snapshots);
  subscribe(subscriptions, record);
  const exemplars = options.exemplars === true ? exemplarsOf(subscriptions) : undefined;
  const families = servicePortFamilies(exemplars);
  return {
    /** Adds the metrics of a data path; at most once. */
    observe: (dataPath: MeasuredDataPath): void => void (facts.dataPath = dataPath),
    /** Adds to a counter or sets a gauge that no event updates. */
    record,
    /** The page in pieces; other work of the event loop runs between them. */
    async *render(format: TextFormat = 'prometheus'): AsyncGenerator<string, void, void> {
      const { dataPath } = facts;
      const servicePorts: ServicePortSnapshot[] = [];
      for await (const part of inTurns(dataPath ? snapshotParts(dataPath.engine) : [])) {
        servicePorts.push(...part);
      }
      facts.servicePorts = servicePorts;
      yield* inBatches(exposition(await familiesIn(registry), [{}], () => '', format));
      exemplars?.keepOnly(new Set(servicePorts.map(({ name }) => name)));
      yield* inBatches(exposition(families, servicePorts, servicePortLabels, format));
      if (options.perEndpoint === true && dataPath !== undefined) {
        const endpoints = await usedEndpoints(dataPath.engine, servicePorts);
        yield* inBatches(exposition(ENDPOINT_FAMILIES, endpoints, endpointLabels, format));
      }
      if (format === 'openmetrics') yield '# EOF\n';
    },
    /** Stops counting events. Idempotent. */
    close: (): void => subscriptions.end(),
  };
}

/** Yields to the event loop between pieces. */
async function* inBatches(pieces: Iterable<string>): AsyncGenerator<string, void, void> {
  for await (const piece of inTurns(pieces)) if (piece !== '') yield piece;
}

/** Of prom-client's default metrics, those that list every handle or descriptor, and those of each heap space. */
const LEFT_OUT = /^(?:nodejs_active_|nodejs_heap_space_|process_open_fds$)/;

/** Interval of measuring the event loop lag. Milliseconds. */
const LAG_PRECISION_MS = 20;

/**
 * Adds the metrics of this process to a registry, as far as the system provides them: those with constant cost. With a
 * hundred thousand connections, the others would stop the event loop at each scrape.
 */
export function addProcessMetrics(registry: Registry): void {
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: LAG_PRECISION_MS });
  for (const { name } of registry.getMetricsAsArray()) {
    if (LEFT_OUT.test(name)) registry.removeSingleMetric(name);
  }
}

/**
 * Since Linux 6.2 the size of this directory is the number of open descriptors. Before that it is 0, and listing them
 * would be too expensive.
 */
async function openDescriptors(): Promise<Sample[]> {
  const size = await stat('/proc/self/fd').then(
    (found) => found.size,
    () => 0,
  );
  return size > 0 ? [[size]] : [];
}
