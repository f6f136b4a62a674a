import type { ServiceSummary } from './service-summary.ts';

/**
 * - `ready`: serves clients, and nothing is wrong.
 * - `degraded`: serves clients, but something needs attention.
 * - `down`: serves no client, or cannot follow changes any more.
 *
 * The position is the exit code of `status` and the value of the metric.
 */
export const HEALTH_STATES = ['ready', 'degraded', 'down'] as const;
export type HealthState = (typeof HEALTH_STATES)[number];

/** `healthz`: fit to get traffic from a load balancer. `livez`: a restart would not help. `readyz`: accepts clients. */
export const PROBES = ['healthz', 'livez', 'readyz'] as const;
export type Probe = (typeof PROBES)[number];

/** A failure that lasts: since when, in milliseconds since the epoch, and the code of the last error. */
export interface Failing {
  readonly since: number;
  readonly code: string;
}

/** What the health of the process depends on. Times are milliseconds since the epoch. */
export interface HealthFacts {
  /** When the first complete state was in place. */
  readonly firstSyncAt?: number | undefined;
  /** When a state was last put in place. */
  readonly lastSyncAt?: number | undefined;
  /** Since when changes have failed, without a success in between, and the code of the last failure. */
  readonly syncFailing?: Failing | undefined;
  /** Since when a change has been waiting to be applied. */
  readonly syncPending?: number | undefined;
  /** The source, for people, and when it last sent a complete change set. */
  readonly source?: { readonly name: string; readonly syncedAt: number | undefined } | undefined;
  /** Since when the source has been unreachable, and the code of the last failure. */
  readonly sourceLost?: Failing | undefined;
  /** Since when the portal has failed, the failed action as half a sentence, and the code of the last failure. */
  readonly portalFailing?: (Failing & { readonly what: string }) | undefined;
  /** Since when another process redirects the same traffic in another way, and the code for that. */
  readonly portalShared?: Failing | undefined;
  /** Why load balancers should not use this node, as half a sentence; undefined: they may. */
  readonly nodeIneligible?: string | undefined;
  readonly stopping?: boolean;
  /** Accepts no new clients because an operator drains it, and may accept them again. */
  readonly draining?: boolean;
  /** The process that has taken over from this one. */
  readonly replacedBy?: number | undefined;
  /** Absent in a process that does not proxy. */
  readonly services?: ServiceSummary | undefined;
  /** Parts of the state that clients cannot use now, by the code of the error. */
  readonly problems?: readonly HealthProblem[];
}

export interface HealthProblem {
  readonly code: string;
  /** How many service ports or addresses it concerns. */
  readonly count: number;
}

/** How long changes may fail or wait before the process counts as unhealthy: twice kube-proxy's sync period. */
export const SYNC_FAILURE_LIMIT_MS = 60_000;
/** How long the last known state counts as current without its source. */
export const STALE_AFTER_MS = 300_000;

interface Finding {
  readonly state: Exclude<HealthState, 'ready'>;
  /** A sentence for people. It names no service and no client: health is public. */
  readonly message: string;
  readonly since?: number;
  readonly count?: number;
}

interface Rule {
  /** The probes that answer 503 while it holds. */
  readonly fails: readonly Probe[];
  readonly find: (facts: HealthFacts, now: number) => Finding | undefined;
}

const NONE: readonly Probe[] = [];
/** A restart does not help a process that waits for its first state, or ends. */
const TRAFFIC: readonly Probe[] = ['healthz', 'readyz'];
/** Another process has the rules and serves clients: no reason to take this node out. */
const TAKEN = 'KPNG_PORTAL_TAKEN';

/**
 * Every reason, by its stable code. A node that serves stays in its load balancers, and is not restarted: without its
 * source, all nodes would leave at once; and a restart does not help with dead endpoints or addresses of another process.
 */
const RULES = {
  starting: rule(TRAFFIC, ({ firstSyncAt }) =>
    firstSyncAt === undefined ? down('waiting for the first complete state') : undefined,
  ),
  stopping: rule(TRAFFIC, ({ stopping }) => (stopping === true ? down('stopping') : undefined)),
  replaced: rule(TRAFFIC, ({ replacedBy }) =>
    replacedBy === undefined
      ? undefined
      : down(`process ${replacedBy} has taken over and accepts the new connections`),
  ),
  drained: rule(TRAFFIC, ({ draining }) =>
    draining === true ? down('drained; accepts no new connections') : undefined,
  ),
  'changes-waiting': rule(PROBES, ({ syncPending: since, firstSyncAt }, now) =>
    // The first state may be large, and a restart would only start it again.
    since !== undefined && firstSyncAt !== undefined && now - since >= SYNC_FAILURE_LIMIT_MS
      ? down(`a change has been waiting to be applied since ${iso(since)}`, since)
      : undefined,
  ),
  'changes-failing': rule(PROBES, ({ syncFailing }, now) =>
    syncFailing !== undefined && isLasting(syncFailing, now)
      ? down(`changes have failed since ${text(syncFailing)}`, syncFailing.since)
      : undefined,
  ),
  'portal-failing': rule(TRAFFIC, ({ portalFailing }) =>
    // Clients may reach the wrong address at once, so this does not wait.
    portalFailing === undefined || portalFailing.code === TAKEN
      ? undefined
      : down(`${portalFailing.what} since ${text(portalFailing)}`, portalFailing.since),
  ),
  'node-ineligible': rule(['healthz'], ({ nodeIneligible }) =>
    nodeIneligible === undefined ? undefined : degraded(nodeIneligible),
  ),
  'source-unreachable': lost('source-unreachable', 'the source has been unreachable'),
  'source-forbidden': lost('source-forbidden', 'a part of the source has been forbidden'),
  'state-file-invalid': lost('state-file-invalid', 'the state file has not been usable'),
  'state-stale': rule(NONE, ({ sourceLost, firstSyncAt }, now) =>
    sourceLost !== undefined &&
    firstSyncAt !== undefined &&
    now - sourceLost.since >= STALE_AFTER_MS
      ? degraded('the served state may be out of date', sourceLost.since)
      : undefined,
  ),
  'change-failed': rule(NONE, ({ syncFailing }, now) => {
    if (syncFailing === undefined || isLasting(syncFailing, now)) return undefined;
    const { code, since } = syncFailing;
    return degraded(`the last change could not be applied (${code}); retrying`, since);
  }),
  'portal-taken': rule(NONE, ({ portalFailing }) =>
    portalFailing?.code === TAKEN
      ? degraded(
          `another process has owned the packet rules since ${text(portalFailing)}`,
          portalFailing.since,
        )
      : undefined,
  ),
  'portal-shared': rule(NONE, ({ portalShared }) =>
    portalShared === undefined
      ? undefined
      : degraded(
          `another process has redirected the same traffic since ${text(portalShared)}`,
          portalShared.since,
        ),
  ),
  'listeners-failed': rule(NONE, ({ services }) => {
    const { open = 0, failed = 0 } = services?.listeners ?? {};
    if (failed === 0) return undefined;
    const message = `${failed} of ${counted(open + failed, 'listen address', 'es')} could not be opened`;
    return { state: open === 0 ? 'down' : 'degraded', message, count: failed };
  }),
  'services-down': rule(NONE, ({ services }) => {
    if (services === undefined || services.states.down === 0) return undefined;
    const { ok, degraded: some, down: count } = services.states;
    const message = `no client gets through to ${count} of ${counted(services.servicePorts, 'service port')}`;
    return { state: ok + some === 0 ? 'down' : 'degraded', message, count };
  }),
  'services-without-endpoints': rule(NONE, ({ services }) => {
    const count = services?.states['no-endpoints'] ?? 0;
    if (count === 0) return undefined;
    return { ...degraded(`${counted(count, 'service port')} without a usable endpoint`), count };
  }),
  'not-served': rule(NONE, ({ problems = [], services }) => {
    const counts = new Map<string, number>();
    let listeners = 0;
    for (const { code, count } of problems) {
      counts.set(code, (counts.get(code) ?? 0) + count);
      if (isListenCode(code)) listeners += count;
    }
    // Those of service ports have a reason of their own; there may be others.
    if (listeners <= (services?.listeners.failed ?? 0)) {
      for (const code of counts.keys()) if (isListenCode(code)) counts.delete(code);
    }
    if (counts.size === 0) return undefined;
    const message = [...counts].map(([code, count]) => `${count} not served (${code})`).join(', ');
    const count = [...counts.values()].reduce((sum, each) => sum + each, 0);
    return { ...degraded(message), count };
  }),
} as const satisfies Record<string, Rule>;

/** `proxy-unreachable`: the process does not answer a command or the status page. */
export type ReasonCode = keyof typeof RULES | 'proxy-unreachable';

/** The reasons that a process can have. */
export const REASON_CODES = Object.keys(RULES) as readonly (keyof typeof RULES)[];

/** Why a process is not ready. */
export interface Reason {
  /** Stable, for programs. */
  readonly code: ReasonCode;
  readonly state: Exclude<HealthState, 'ready'>;
  /** For people: a sentence without a dot. */
  readonly message: string;
  /** ISO 8601. */
  readonly since?: string;
  /** How many service ports, addresses or items it concerns. */
  readonly count?: number;
}

/** The health of a process. Every page, command, probe and metric shows this and computes nothing itself. */
export interface Verdict {
  /** The worst of the reasons. */
  readonly state: HealthState;
  /** The worst first. */
  readonly reasons: readonly Reason[];
  /** What the health pages answer, and the reasons for a 503. */
  readonly probes: Readonly<Record<Probe, ProbeAnswer>>;
}

export interface ProbeAnswer {
  readonly status: 200 | 503;
  readonly failing: readonly ReasonCode[];
}

/** The verdict on some facts at a time, in milliseconds since the epoch. */
export function verdictOf(facts: HealthFacts, now: number): Verdict {
  const reasons = REASON_CODES.flatMap((code): Reason[] => {
    const found = RULES[code].find(facts, now);
    if (found === undefined) return [];
    const { since, ...rest } = found;
    return [{ code, ...rest, ...(since !== undefined && { since: iso(since) }) }];
  });
  return verdictFor([
    ...reasons.filter(({ state }) => state === 'down'),
    ...reasons.filter(({ state }) => state === 'degraded'),
  ]);
}

/** The verdict on a process that does not answer. */
export function unreachable(message: string): Verdict {
  return verdictFor([{ code: 'proxy-unreachable', state: 'down', message }]);
}

function verdictFor(reasons: readonly Reason[]): Verdict {
  const answer = (probe: Probe): ProbeAnswer => {
    const failing = reasons.map(({ code }) => code).filter((code) => failsOf(code).includes(probe));
    return { status: failing.length === 0 ? 200 : 503, failing };
  };
  return {
    state: reasons[0]?.state ?? 'ready',
    reasons,
    probes: { healthz: answer('healthz'), livez: answer('livez'), readyz: answer('readyz') },
  };
}

/** The probes that answer 503 for a reason; none for a process that does not answer. */
export function failsOf(code: ReasonCode): readonly Probe[] {
  return code === 'proxy-unreachable' ? NONE : RULES[code].fails;
}

function rule(fails: readonly Probe[], find: Rule['find']): Rule {
  return { fails, find };
}

function lost(code: string, what: string): Rule {
  return rule(NONE, ({ sourceLost, firstSyncAt }) => {
    if (sourceLost === undefined || lossOf(sourceLost) !== code) return undefined;
    const kept = firstSyncAt === undefined ? '' : '; serving the last known state';
    return degraded(`${what} since ${text(sourceLost)}${kept}`, sourceLost.since);
  });
}

function isListenCode(code: string): boolean {
  return code.startsWith('KPNG_LISTEN_');
}

function lossOf({ code }: Failing): string {
  if (code === 'KPNG_KUBE_FORBIDDEN') return 'source-forbidden';
  return code.startsWith('KPNG_STATE_FILE_') ? 'state-file-invalid' : 'source-unreachable';
}

/** Whether changes have failed for too long. */
function isLasting(failing: Failing, now: number): boolean {
  return failing.code !== TAKEN && now - failing.since >= SYNC_FAILURE_LIMIT_MS;
}

function down(message: string, since?: number): Finding {
  return { state: 'down', message, ...(since !== undefined && { since }) };
}

function degraded(message: string, since?: number): Finding {
  return { state: 'degraded', message, ...(since !== undefined && { since }) };
}

function text({ since, code }: Failing): string {
  return `${iso(since)} (${code})`;
}

function counted(number: number, noun: string, plural = 's'): string {
  return `${number} ${noun}${number === 1 ? '' : plural}`;
}

function iso(time: number): string {
  return new Date(time).toISOString();
}
