import { runInParts } from '../observe/parts.ts';
import { failingOf } from '../observe/service-state.ts';
import { type ServiceSummary, summaryOf, type Traffic } from '../observe/service-summary.ts';
import { LIMIT_NAMES } from '../proxysocket/limits.ts';
import type { Sampler } from './sampler.ts';
import type { ProcessSubject, ProxySubject } from './subject.ts';

export type StatusView = Awaited<ReturnType<typeof statusOf>>;
export type SourceView = NonNullable<StatusView['source']>;
export type ProxyView = NonNullable<StatusView['proxy']>;

/** The process, its health, and the totals of all service ports. May stop, with the signal's reason, when it aborts. */
export async function statusOf(
  subject: ProcessSubject,
  rates: Pick<Sampler, 'rates'>,
  signal?: AbortSignal,
) {
  const { health, log, version, command, nodeName } = subject;
  const proxy = subject.proxy();
  const uptime = process.uptime();
  const summary =
    proxy && (await runInParts(summaryOf(proxy, await failingOf(proxy.engine)), signal));
  if (summary !== undefined) health.change({ services: summary });
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
      successor: health.facts.replacedBy ?? null,
      rssBytes: process.memoryUsage.rss(),
    },
    health: health.verdict,
    source: sourceOf(subject),
    logLevel: log.verbosity,
    proxy: proxy && summary ? proxyView(proxy, summary, rates.rates) : null,
  };
}

function sourceOf({ health }: ProcessSubject) {
  const { source, sourceLost } = health.facts;
  if (source === undefined) return null;
  const { name, syncedAt } = source;
  return {
    name,
    connected: sourceLost === undefined,
    syncedAt: syncedAt === undefined ? null : new Date(syncedAt).toISOString(),
    syncAgeSeconds: syncedAt === undefined ? null : Math.round((Date.now() - syncedAt) / 1000),
  };
}

function proxyView(subject: ProxySubject, summary: ServiceSummary, rates: Traffic) {
  const { active } = summary;
  const { maxConnections, maxUdpSessions, maxHeldConnections, holdTimeoutMs } = subject.limits;
  const held = {
    limit: LIMIT_NAMES.maxHeldConnections,
    used: active.held,
    max: maxHeldConnections,
  };
  return {
    ...summary,
    engine: subject.engine.kind,
    portal: subject.portal,
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
