import { stat } from 'node:fs/promises';
import { setImmediate } from 'node:timers/promises';
import { collectDefaultMetrics, Registry } from 'prom-client';
import type { Engine, ServicePortSnapshot } from '../proxysocket/engine.ts';
import { limitChanged } from '../proxysocket/events.ts';
import { type EngineLimits, LIMIT_NAMES } from '../proxysocket/limits.ts';
import { eventMetrics } from './event-metrics.ts';
import { snapshotParts, type SnapshotSource } from './parts.ts';
import { exposition, familiesIn, type TextFormat } from './exposition.ts';
import { HEALTH_STATES, REASON_CODES, type Verdict } from './verdict.ts';
import type { ProxyHealth } from './health.ts';
import { counter, gauge, on, recorded, register, type Sample, snapshot } from './metric-table.ts';
import {
  ENDPOINT_FAMILIES,
  endpointLabels,
  Exemplars,
  servicePortFamilies,
  servicePortLabels,
  usedEndpoints,
} from './service-port-metrics.ts';
import { Subscriptions } from '../util/channel.ts';

export interface MeasuredDataPath
  extends SnapshotSource, Pick<Engine, 'inspect'>, Pick<ProxyHealth, 'problems'> {
  readonly engine: string;
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

/** All metrics of the process; those of service ports and endpoints have tables of their own. */
export function metricTable(facts: Facts = { version: '', servicePorts: [] }) {
  return {
    ...eventMetrics(),
    kpng_userspace_problems: gauge(
      'Service ports and addresses that cannot be served now, by code.',
      snapshot(['code'], () =>
        (facts.dataPath?.problems() ?? []).map(({ code, count }) => [count, { code }]),
      ),
    ),
    kpng_userspace_limit: gauge(
      'The limits, by the name of their flag. Times in seconds, sizes in bytes.',
      snapshot(['limit'], () => limitSamples(facts)),
    ),
    kpng_userspace_limit_used: gauge(
      'How much of a limit is used now.',
      snapshot(['limit'], () => useSamples(facts)),
    ),
    kpng_userspace_limit_reached_total: counter(
      'Times that a limit was reached.',
      on(limitChanged, ({ reached }) => (reached ? 1 : undefined), 'limit'),
    ),
    kpng_userspace_health: gauge(
      'The health of the process, by reason: 0 fine, 1 degraded, 2 down. The worst is that of the process.',
      snapshot(['reason'], async () => {
        const verdict = await facts.verdict?.();
        const states = new Map(verdict?.reasons.map(({ code, state }) => [code, state]));
        return (verdict === undefined ? [] : REASON_CODES).map((reason) => {
          return [HEALTH_STATES.indexOf(states.get(reason) ?? 'ready'), { reason }];
        });
      }),
    ),
    process_open_fds: gauge(
      'Number of open file descriptors; absent where the system does not count them.',
      snapshot([], openDescriptors),
    ),
    kpng_userspace_build_info: gauge(
      'Always 1; the labels say what is running.',
      snapshot(['version', 'node', 'engine', 'portal'], () => {
        const { engine = '', portal = '' } = facts.dataPath ?? {};
        return [[1, { version: facts.version, node: process.versions.node, engine, portal }]];
      }),
    ),
    kubeproxy_proxy_healthz_total: counter(
      'Answers of /healthz, by status code.',
      recorded('code'),
    ),
    kubeproxy_proxy_livez_total: counter('Answers of /livez, by status code.', recorded('code')),
    kpng_userspace_authentications_total: counter(
      'Requests for metrics that had to be authenticated, by result.',
      recorded('result'),
    ),
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

/** Creates the metrics. Those of the data path appear once there is one. */
export function createMetrics(options: MetricsOptions) {
  const registry = new Registry();
  const subscriptions = new Subscriptions();
  addProcessMetrics(registry);
  const facts: Facts = { ...options, servicePorts: [] };
  const exemplars = options.exemplars === true ? new Exemplars(subscriptions) : undefined;
  const families = servicePortFamilies(exemplars);
  return {
    /** Adds the metrics of a data path; at most once. */
    observe: (dataPath: MeasuredDataPath): void => void (facts.dataPath = dataPath),
    /** Adds to a counter or sets a gauge that no event updates. */
    record: register(registry, subscriptions, metricTable(facts)),
    /** The page in pieces; other work of the event loop runs between them. */
    async *render(format: TextFormat = 'prometheus'): AsyncGenerator<string, void, void> {
      const { dataPath } = facts;
      const servicePorts: ServicePortSnapshot[] = [];
      for (const part of dataPath === undefined ? [] : snapshotParts(dataPath)) {
        servicePorts.push(...part);
        await setImmediate();
      }
      facts.servicePorts = servicePorts;
      yield* inBatches(exposition(await familiesIn(registry), [{}], () => '', format));
      exemplars?.keepOnly(new Set(servicePorts.map(({ name }) => name)));
      yield* inBatches(exposition(families, servicePorts, servicePortLabels, format));
      if (options.perEndpoint === true && dataPath !== undefined) {
        const endpoints = await usedEndpoints(dataPath, servicePorts);
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
  for (const piece of pieces) {
    if (piece !== '') yield piece;
    await setImmediate();
  }
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
