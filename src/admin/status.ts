import type { Probe } from '../observe/health.ts';
import type { ServicePortSnapshot } from '../proxysocket/engine.ts';
import { LIMIT_NAMES } from '../proxysocket/limits.ts';
import { factsOf, failedListeners, type Failing, NONE_FAILING, stateOf } from './service-state.ts';
import { snapshotParts } from '../observe/parts.ts';
import type { Parts } from '../observe/parts.ts';
import { addTraffic, NO_TRAFFIC, totalsOf } from './sampler.ts';
import type { Sampler } from './sampler.ts';
import { noStates } from './services.ts';
import type { ProcessSubject, ProxySubject } from './subject.ts';
import type { ProbeView, ProxyView, StatusView } from './views.ts';

/** The process, its health, and the totals of all service ports; `failing`: endpoints that refuse connections. */
export function* statusOf(
  subject: ProcessSubject,
  rates: Pick<Sampler, 'rates'>,
  failing: Failing = NONE_FAILING,
): Parts<StatusView> {
  const { health, log, version, command, nodeName } = subject;
  const probe = (which: Probe): ProbeView => {
    const { status, body } = health.evaluate(which);
    return { status, failing: body.failing ?? [], degraded: body.degraded ?? [] };
  };
  const proxy = subject.proxy();
  const uptime = process.uptime();
  const view = proxy === undefined ? null : yield* proxyView(proxy, rates, failing);
  const probes = { healthz: probe('healthz'), livez: probe('livez'), readyz: probe('readyz') };
  return {
    process: {
      pid: process.pid,
      version,
      node: process.versions.node,
      platform: `${process.platform} ${process.arch}`,
      startedAt: new Date(Date.now() - uptime * 1000).toISOString(),
      uptimeSeconds: Math.floor(uptime),
      command,
      nodeName: nodeName ?? null,
      successor: subject.newProcess?.() ?? null,
      rssBytes: process.memoryUsage.rss(),
    },
    state: stateOfProcess(subject, proxy, probes),
    health: probes,
    logLevel: log.verbosity,
    proxy: view,
  };
}

function stateOfProcess(
  subject: ProcessSubject,
  proxy: ProxySubject | undefined,
  { healthz, readyz }: StatusView['health'],
): StatusView['state'] {
  const { health } = subject;
  if (health.facts.stopping || subject.newProcess?.() !== undefined) return 'stopping';
  if (proxy?.proxier.drains.isAllDrained === true) return 'drained';
  if (health.facts.firstSyncAt === undefined) return 'starting';
  return healthz.status === 200 && readyz.status === 200 ? 'ready' : 'not-ready';
}

function* proxyView(
  subject: ProxySubject,
  { rates }: Pick<Sampler, 'rates'>,
  failing: Failing,
): Parts<ProxyView> {
  const states = noStates();
  const listeners = { open: 0, failed: 0 };
  const active = { tcp: 0, udp: 0, held: 0 };
  const totals = { ...NO_TRAFFIC };
  let servicePorts = 0;
  let endpoints = 0;
  const add = (snapshot: ServicePortSnapshot): void => {
    servicePorts += 1;
    const { counters, protocol } = snapshot;
    states[stateOf(factsOf(snapshot, subject.proxier, failing))] += 1;
    endpoints += snapshot.endpoints;
    const failed = failedListeners(snapshot);
    listeners.failed += failed;
    listeners.open += snapshot.listeners.length - failed;
    active[protocol === 'TCP' ? 'tcp' : 'udp'] += counters.active;
    active.held += counters.held;
    addTraffic(totals, totalsOf(counters));
  };
  for (const part of snapshotParts(subject.engine)) {
    part.forEach(add);
    yield;
  }
  const { maxConnections, maxUdpSessions, maxHeldConnections, holdTimeoutMs } = subject.limits;
  const held = {
    limit: LIMIT_NAMES.maxHeldConnections,
    used: active.held,
    max: maxHeldConnections,
  };
  return {
    engine: subject.engine.kind,
    portal: subject.portal,
    servicePorts,
    states,
    endpoints,
    listeners,
    active,
    totals,
    rates,
    limits: [
      { limit: LIMIT_NAMES.maxConnections, used: active.tcp + active.held, max: maxConnections },
      { limit: LIMIT_NAMES.maxUdpSessions, used: active.udp, max: maxUdpSessions },
      ...(holdTimeoutMs > 0 ? [held] : []),
    ],
    problems: subject.problems(),
    drains: subject.proxier.drains.list(),
  };
}
