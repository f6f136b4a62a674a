import { noStates, type ServiceSummary } from './service-state.ts';

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

const NONE: readonly Probe[] = [];
/** A restart does not help a process that waits for its first state, or ends. */
const TRAFFIC: readonly Probe[] = ['healthz', 'readyz'];

/**
 * Every reason, by its stable code, with the probes that answer 503 for it. A node that serves stays in its load balancers,
 * and is not restarted: without its source, all nodes would leave at once; and a restart does not help with dead
 * endpoints or addresses of another process.
 */
const FAILS = {
  starting: TRAFFIC,
  stopping: TRAFFIC,
  replaced: TRAFFIC,
  drained: TRAFFIC,
  'changes-waiting': PROBES,
  'changes-failing': PROBES,
  'portal-failing': TRAFFIC,
  'node-ineligible': ['healthz'],
  'source-unreachable': NONE,
  'source-forbidden': NONE,
  'state-file-invalid': NONE,
  'state-stale': NONE,
  'change-failed': NONE,
  'portal-taken': NONE,
  'portal-shared': NONE,
  'listeners-failed': NONE,
  'services-down': NONE,
  'services-without-endpoints': NONE,
  'not-served': NONE,
  'proxy-unreachable': NONE,
} as const satisfies Record<string, readonly Probe[]>;

/** `proxy-unreachable`: the process does not answer a command or the status page. */
export type ReasonCode = keyof typeof FAILS;

export const REASON_CODES: readonly ReasonCode[] = (Object.keys(FAILS) as ReasonCode[]).filter(
  (code) => code !== 'proxy-unreachable',
);

export interface Reason {
  /** Stable, for programs. */
  readonly code: ReasonCode;
  readonly state: Exclude<HealthState, 'ready'>;
  /** For people: a sentence without a dot. It names no service and no client: health is public. */
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
  const rank = ({ code, state }: Reason): number =>
    REASON_CODES.indexOf(code) + (state === 'down' ? 0 : REASON_CODES.length);
  const found = [...processReasons(facts, now), ...serviceReasons(facts)];
  return verdictFor(found.sort((one, other) => rank(one) - rank(other)));
}

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
  return FAILS[code];
}

/** Another process has the rules and serves clients: no reason to take this node out. */
const TAKEN = 'KPNG_PORTAL_TAKEN';

function* processReasons(facts: HealthFacts, now: number): Generator<Reason> {
  const { firstSyncAt, syncPending, syncFailing, sourceLost, portalFailing, portalShared } = facts;
  const { stopping = false, draining = false, replacedBy, nodeIneligible } = facts;
  const isStarted = firstSyncAt !== undefined;
  if (!isStarted) yield reason('down', 'starting', 'waiting for the first complete state');
  if (stopping) yield reason('down', 'stopping', 'stopping');
  if (replacedBy !== undefined) {
    const message = `process ${replacedBy} has taken over and accepts the new connections`;
    yield reason('down', 'replaced', message);
  }
  if (draining) yield reason('down', 'drained', 'drained; accepts no new connections');
  // The first state may be large, and a restart would only start it again.
  if (isStarted && syncPending !== undefined && now - syncPending >= SYNC_FAILURE_LIMIT_MS) {
    const message = `a change has been waiting to be applied since ${iso(syncPending)}`;
    yield reason('down', 'changes-waiting', message, syncPending);
  }
  if (syncFailing !== undefined) {
    const { since, code } = syncFailing;
    const message = `the last change could not be applied (${code}); retrying`;
    if (code === TAKEN || now - since < SYNC_FAILURE_LIMIT_MS)
      yield reason('degraded', 'change-failed', message, since);
    else yield lasting('down', 'changes-failing', 'changes have failed', syncFailing);
  }
  if (portalFailing?.code === TAKEN) {
    const message = 'another process has owned the packet rules';
    yield lasting('degraded', 'portal-taken', message, portalFailing);
  } else if (portalFailing !== undefined) {
    // Clients may reach the wrong address at once, so this does not wait.
    yield lasting('down', 'portal-failing', portalFailing.what, portalFailing);
  }
  if (nodeIneligible !== undefined) yield reason('degraded', 'node-ineligible', nodeIneligible);
  if (sourceLost !== undefined) {
    const end = isStarted ? '; serving the last known state' : '';
    yield lasting('degraded', ...lossOf(sourceLost), sourceLost, end);
    if (isStarted && now - sourceLost.since >= STALE_AFTER_MS) {
      const message = 'the served state may be out of date';
      yield reason('degraded', 'state-stale', message, sourceLost.since);
    }
  }
  if (portalShared !== undefined) {
    const message = 'another process has redirected the same traffic';
    yield lasting('degraded', 'portal-shared', message, portalShared);
  }
}

function* serviceReasons({ services, problems = [] }: HealthFacts): Generator<Reason> {
  const { open = 0, failed = 0 } = services?.listeners ?? {};
  if (failed > 0) {
    const message = `${failed} of ${counted(open + failed, 'listen address', 'es')} could not be opened`;
    const state = open === 0 ? 'down' : 'degraded';
    yield { ...reason(state, 'listeners-failed', message), count: failed };
  }
  const { ok, degraded, down, 'no-endpoints': unusable } = services?.states ?? noStates();
  if (down > 0) {
    const all = counted(services?.servicePorts ?? 0, 'service port');
    const message = `no client gets through to ${down} of ${all}`;
    const state = ok + degraded === 0 ? 'down' : 'degraded';
    yield { ...reason(state, 'services-down', message), count: down };
  }
  if (unusable > 0) {
    const message = `${counted(unusable, 'service port')} without a usable endpoint`;
    yield { ...reason('degraded', 'services-without-endpoints', message), count: unusable };
  }
  const counts = new Map<string, number>();
  for (const { code, count } of problems) counts.set(code, (counts.get(code) ?? 0) + count);
  const listeners = [...counts].filter(([code]) => code.startsWith('KPNG_LISTEN_'));
  // Those of service ports have a reason of their own; there may be others.
  if (sumOf(listeners) <= failed) for (const [code] of listeners) counts.delete(code);
  if (counts.size === 0) return;
  const message = [...counts].map(([code, count]) => `${count} not served (${code})`).join(', ');
  yield { ...reason('degraded', 'not-served', message), count: sumOf([...counts]) };
}

function sumOf(counts: readonly (readonly [string, number])[]): number {
  return counts.reduce((sum, [, count]) => sum + count, 0);
}

/** The reason for a source that is lost, and its message. */
function lossOf({ code }: Failing): [ReasonCode, string] {
  if (code === 'KPNG_KUBE_FORBIDDEN')
    return ['source-forbidden', 'a part of the source has been forbidden'];
  return code.startsWith('KPNG_STATE_FILE_')
    ? ['state-file-invalid', 'the state file has not been usable']
    : ['source-unreachable', 'the source has been unreachable'];
}

function reason(state: Reason['state'], code: ReasonCode, message: string, since?: number): Reason {
  return { code, state, message, ...(since !== undefined && { since: iso(since) }) };
}

/** The reason for a failure that lasts. `what`: half a sentence. */
function lasting(
  state: Reason['state'],
  code: ReasonCode,
  what: string,
  failing: Failing,
  end = '',
): Reason {
  const message = `${what} since ${iso(failing.since)} (${failing.code})${end}`;
  return reason(state, code, message, failing.since);
}

function counted(number: number, noun: string, plural = 's'): string {
  return `${number} ${noun}${number === 1 ? '' : plural}`;
}

function iso(time: number): string {
  return new Date(time).toISOString();
}
