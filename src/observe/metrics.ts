import { setImmediate } from 'node:timers/promises';
import { Registry } from 'prom-client';
import type { Engine, ServicePortSnapshot } from '../proxysocket/engine.ts';
import type { EngineLimits } from '../proxysocket/limits.ts';
import { ENDPOINT_FAMILIES, endpointLabels, usedEndpoints } from './endpoint-metrics.ts';
import { addEventMetrics } from './event-metrics.ts';
import { snapshotParts, type SnapshotSource } from './parts.ts';
import { Exemplars } from './exemplars.ts';
import { exposition } from './exposition.ts';
import type { AuthorizationResult } from './access.ts';
import { HEALTH_STATES, type Probe, REASON_CODES, type Verdict } from './verdict.ts';
import type { ProxyHealth } from './health.ts';
import {
  addLimitMetrics,
  addProcessMetrics,
  counter,
  gauge,
  registerTable,
} from './metric-table.ts';
import { familiesWith, SERVICE_PORT_FAMILIES, servicePortLabels } from './service-port-metrics.ts';
import type { ScrapeFormat } from './scrape-format.ts';
import { Subscriptions } from '../util/channel.ts';

/** What the metrics need of a data path. */
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

/** The metrics of the process. */
export interface Metrics {
  /** Help texts of metrics that belong to neither a service port nor a limit. */
  readonly registry: Registry;
  /** Adds the metrics of a data path; at most once. */
  observe(dataPath: MeasuredDataPath): void;
  /** Counts a response of a health page. */
  readonly countProbe: (probe: Probe, status: number) => void;
  /** Sets how many services lack an endpoint that their traffic policy allows on this node. */
  readonly countNoLocalEndpoints: (counts: Record<'internal' | 'external', number>) => void;
  /** Counts a request that had to be authenticated. */
  readonly countAuthentication: (result: AuthorizationResult) => void;
  /**
   * The page in Prometheus' text format, in pieces; other work of the event loop runs between them. For OpenMetrics it
   * has exemplars, if these are wanted.
   */
  render(text?: ScrapeFormat['text']): AsyncGenerator<string, void, void>;
  /** Stops counting events. Idempotent. */
  close(): void;
}

const TABLE = {
  kpng_userspace_build_info: gauge(
    'Always 1; the labels say what is running.',
    'version',
    'node',
    'engine',
    'portal',
  ),
  kubeproxy_proxy_healthz_total: counter('Answers of /healthz, by status code.', 'code'),
  kubeproxy_proxy_livez_total: counter('Answers of /livez, by status code.', 'code'),
  kubeproxy_sync_proxy_rules_no_local_endpoints_total: gauge(
    'Services with a Local traffic policy and no endpoint for it, by policy.',
    'traffic_policy',
  ),
  kpng_userspace_authentications_total: counter(
    'Requests for metrics that had to be authenticated, by result.',
    'result',
  ),
  kpng_userspace_problems: gauge(
    'Service ports and addresses that cannot be served now, by code.',
    'code',
  ),
  kpng_userspace_health: gauge(
    'The health of the process, by reason: 0 fine, 1 degraded, 2 down. The worst is that of the process.',
    'reason',
  ),
};

/** Creates the registry, with the metrics that do not depend on a data path. */
export function createMetrics(options: MetricsOptions): Metrics {
  const { version, perEndpoint = false, verdict } = options;
  const registry = new Registry();
  const subscriptions = new Subscriptions();
  addProcessMetrics(registry);
  const updateTimes = addEventMetrics(registry, subscriptions);
  const exemplars = options.exemplars === true ? new Exemplars(subscriptions) : undefined;
  const all = registerTable(registry, TABLE);
  const build = all.kpng_userspace_build_info;
  const info = { version, node: process.versions.node };
  build.set({ ...info, engine: '', portal: '' }, 1);
  let dataPath: Omit<MeasuredDataPath, 'engine' | 'portal' | 'limits'> = {
    snapshot: () => [],
    problems: () => [],
  };
  let updateUse: ReturnType<typeof addLimitMetrics> = () => {};

  return {
    registry,
    observe(measured) {
      dataPath = measured;
      build.reset();
      build.set({ ...info, engine: measured.engine, portal: measured.portal }, 1);
      updateUse = addLimitMetrics(registry, subscriptions, measured.limits);
    },
    countNoLocalEndpoints(counts) {
      const metric = all.kubeproxy_sync_proxy_rules_no_local_endpoints_total;
      for (const [policy, count] of Object.entries(counts))
        metric.set({ traffic_policy: policy }, count);
    },
    countAuthentication: (result) => all.kpng_userspace_authentications_total.inc({ result }),
    countProbe(probe, status) {
      const code = String(status);
      if (probe === 'healthz') all.kubeproxy_proxy_healthz_total.inc({ code });
      if (probe === 'livez') all.kubeproxy_proxy_livez_total.inc({ code });
    },
    async *render(text = 'prometheus') {
      const servicePorts = await allServicePorts(dataPath);
      updateUse(servicePorts);
      updateTimes();
      const problems = all.kpng_userspace_problems;
      problems.reset();
      for (const { code, count } of dataPath.problems()) problems.inc({ code }, count);
      if (verdict !== undefined) {
        const { reasons } = await verdict();
        const states = new Map(
          reasons.map(({ code, state }) => [code, HEALTH_STATES.indexOf(state)]),
        );
        for (const reason of REASON_CODES)
          all.kpng_userspace_health.set({ reason }, states.get(reason) ?? 0);
      }
      yield `${await registry.metrics()}\n`;
      exemplars?.keepOnly(new Set(servicePorts.map(({ name }) => name)));
      const families =
        exemplars !== undefined && text === 'openmetrics'
          ? familiesWith(exemplars)
          : SERVICE_PORT_FAMILIES;
      yield* inBatches(exposition(families, servicePorts, servicePortLabels));
      if (!perEndpoint) return;
      const endpoints = await usedEndpoints(dataPath, servicePorts);
      yield* inBatches(exposition(ENDPOINT_FAMILIES, endpoints, endpointLabels));
    },
    close: () => subscriptions.end(),
  };
}

/** Yields to the event loop between pieces. */
async function* inBatches(pieces: Iterable<string>): AsyncGenerator<string, void, void> {
  for (const piece of pieces) {
    if (piece !== '') yield piece;
    await setImmediate();
  }
}

/** All service ports, yielding to the event loop in between. */
async function allServicePorts(dataPath: SnapshotSource): Promise<ServicePortSnapshot[]> {
  const found: ServicePortSnapshot[] = [];
  for (const part of snapshotParts(dataPath)) {
    if (found.length > 0) await setImmediate();
    found.push(...part);
  }
  return found;
}
