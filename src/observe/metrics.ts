import { setImmediate } from 'node:timers/promises';
import { Counter, Gauge, Registry } from 'prom-client';
import type { ServicePortSnapshot } from '../proxysocket/engine.ts';
import type { EngineLimits } from '../proxysocket/limits.ts';
import type { GuardResult } from './guard.ts';
import type { HealthProblem, Probe } from './health.ts';
import { addConfigMetrics } from './config-metrics.ts';
import { ENDPOINT_FAMILIES, EndpointBook, endpointLabels } from './endpoint-metrics.ts';
import { exposition } from './exposition.ts';
import { addFaultMetrics } from './fault-metrics.ts';
import { addKubeMetrics } from './kube-metrics.ts';
import { addLimitMetrics } from './limit-metrics.ts';
import { snapshotParts, type SnapshotSource } from './parts.ts';
import { addPortalMetrics } from './portal-metrics.ts';
import { addProgrammingMetrics } from './programming-metrics.ts';
import { addProcessMetrics } from './process-metrics.ts';
import { addKpngMetrics } from './kpng-metrics.ts';
import { addServerMetrics } from './server-metrics.ts';
import { addSinkMetrics } from './sink-metrics.ts';
import { SERVICE_PORT_FAMILIES, servicePortLabels } from './service-port-metrics.ts';
import { addStateMetrics } from './state-metrics.ts';
import { Subscriptions } from './subscriptions.ts';

/** What the metrics need of a data path. */
export interface MeasuredDataPath extends SnapshotSource {
  readonly engine: string;
  readonly portal: string;
  readonly limits: EngineLimits;
  /** What clients cannot use now. */
  problems(): readonly HealthProblem[];
}

export interface MetricsOptions {
  readonly version: string;
  /** Whether endpoints are counted one by one, which makes the data path tell of every connection. */
  readonly perEndpoint?: boolean;
}

/** The metrics of the process. */
export interface Metrics {
  /** For metrics that are neither of a service port nor of a limit. */
  readonly registry: Registry;
  /** The MIME type of what `render` gives. */
  readonly contentType: string;
  /** Adds the metrics of a data path; at most once. */
  observe(dataPath: MeasuredDataPath): void;
  /** Counts an answer of a health page. */
  readonly countProbe: (probe: Probe, status: number) => void;
  /** How many services lack an endpoint that their traffic policy lets this node use. */
  readonly countNoLocalEndpoints: (counts: Record<'internal' | 'external', number>) => void;
  /** Counts a request that had to be authenticated. */
  readonly countAuthentication: (result: GuardResult) => void;
  /** The page, in pieces; other work of the event loop goes on between them. */
  render(): AsyncGenerator<string, void, void>;
  /** Counts no more events. Idempotent. */
  close(): void;
}

/** Makes the registry, with everything that does not depend on a data path. */
export function createMetrics({ version, perEndpoint = false }: MetricsOptions): Metrics {
  const registry = new Registry();
  const subscriptions = new Subscriptions();
  addProcessMetrics(registry);
  addStateMetrics(registry, subscriptions);
  addConfigMetrics(registry, subscriptions);
  addProgrammingMetrics(registry, subscriptions);
  addKubeMetrics(registry, subscriptions);
  addServerMetrics(registry, subscriptions);
  addKpngMetrics(registry, subscriptions);
  addSinkMetrics(registry, subscriptions);
  addPortalMetrics(registry, subscriptions);
  addFaultMetrics(registry, subscriptions);
  const endpoints = perEndpoint ? new EndpointBook(subscriptions) : undefined;
  const build = new Gauge({
    name: 'kpng_userspace_build_info',
    help: 'Always 1; the labels tell what is running.',
    labelNames: ['version', 'node', 'engine', 'portal'],
    registers: [registry],
  });
  const info = { version, node: process.versions.node };
  build.set({ ...info, engine: '', portal: '' }, 1);
  const probes = probeCounters(registry);
  const noLocal = new Gauge({
    name: 'kubeproxy_sync_proxy_rules_no_local_endpoints_total',
    help: 'Services with a Local traffic policy and no endpoint for it, by policy.',
    labelNames: ['traffic_policy'],
    registers: [registry],
  });
  const authentications = new Counter({
    name: 'kpng_userspace_authentications_total',
    help: 'Requests for metrics that had to be authenticated, by result.',
    labelNames: ['result'],
    registers: [registry],
  });
  const problems = new Gauge({
    name: 'kpng_userspace_problems',
    help: 'Service ports and addresses that cannot be served now, by code.',
    labelNames: ['code'],
    registers: [registry],
  });
  let dataPath: Pick<MeasuredDataPath, 'snapshot' | 'names' | 'problems'> = {
    snapshot: () => [],
    problems: () => [],
  };
  let updateUse: ReturnType<typeof addLimitMetrics> = () => {};

  return {
    registry,
    contentType: registry.contentType,
    observe(measured) {
      dataPath = measured;
      build.reset();
      build.set({ ...info, engine: measured.engine, portal: measured.portal }, 1);
      updateUse = addLimitMetrics(registry, subscriptions, measured.limits);
    },
    countNoLocalEndpoints({ internal, external }) {
      noLocal.set({ traffic_policy: 'internal' }, internal);
      noLocal.set({ traffic_policy: 'external' }, external);
    },
    countAuthentication: (result) => authentications.inc({ result }),
    countProbe: (probe, status) => probes[probe]?.inc({ code: String(status) }),
    async *render() {
      const servicePorts = await inParts(dataPath);
      updateUse(servicePorts);
      problems.reset();
      for (const { code, count } of dataPath.problems()) problems.inc({ code }, count);
      const pieces = exposition(SERVICE_PORT_FAMILIES, servicePorts, servicePortLabels);
      yield `${await registry.metrics()}\n`;
      yield* inTurns(pieces);
      if (endpoints === undefined) return;
      yield* inTurns(exposition(ENDPOINT_FAMILIES, endpoints.counts(servicePorts), endpointLabels));
    },
    close: () => subscriptions.end(),
  };
}

/** Pieces of text, with turns for others in between. */
async function* inTurns(pieces: Iterable<string>): AsyncGenerator<string, void, void> {
  for (const piece of pieces) {
    if (piece !== '') yield piece;
    await setImmediate();
  }
}

/** All service ports, with turns for others in between. */
async function inParts(dataPath: SnapshotSource): Promise<ServicePortSnapshot[]> {
  const found: ServicePortSnapshot[] = [];
  for (const part of snapshotParts(dataPath)) {
    if (found.length > 0) await setImmediate();
    found.push(...part);
  }
  return found;
}

/** kube-proxy's two counters of health answers. */
function probeCounters(registry: Registry): Partial<Record<Probe, Counter<'code'>>> {
  const counter = (name: string, path: string): Counter<'code'> =>
    new Counter({
      name,
      help: `Answers of ${path}, by status code.`,
      labelNames: ['code'],
      registers: [registry],
    });
  return {
    healthz: counter('kubeproxy_proxy_healthz_total', '/healthz'),
    livez: counter('kubeproxy_proxy_livez_total', '/livez'),
  };
}
