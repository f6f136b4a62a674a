/** A continuing failure: its start in milliseconds since the epoch, and the code of the last error. */
interface Failing {
  readonly since: number;
  readonly code: string;
}

/** What the health of the process depends on. Times are milliseconds since the epoch. */
export interface HealthFacts {
  /** When the first complete state was applied. */
  readonly firstSyncAt: number | undefined;
  /** When a state was last applied. */
  readonly lastSyncAt: number | undefined;
  /** The continuing failure to apply changes, if any. */
  readonly syncFailing: Failing | undefined;
  /** The continuing loss of the source, if any. */
  readonly sourceLost: Failing | undefined;
  /** The continuing failure of the portal, if any. */
  readonly portalFailing: PortalFailing | undefined;
  /** Another process that redirects the same traffic in another way, if any. */
  readonly portalShared: Failing | undefined;
  /** Why load balancers should not use this node, as half a sentence; undefined: they may. */
  readonly nodeIneligible: string | undefined;
  /** Since when a change has been waiting to be applied. */
  readonly syncPending: number | undefined;
  readonly stopping: boolean;
  /** Accepts no new clients because an operator drains it; that may be undone. */
  readonly draining: boolean;
}

export interface PortalFailing extends Failing {
  /** The failed action, as half a sentence. */
  readonly what: string;
}

export const INITIAL_FACTS: HealthFacts = {
  firstSyncAt: undefined,
  lastSyncAt: undefined,
  syncFailing: undefined,
  sourceLost: undefined,
  portalFailing: undefined,
  portalShared: undefined,
  nodeIneligible: undefined,
  syncPending: undefined,
  stopping: false,
  draining: false,
};

/** Another process has the rules and serves clients: no reason to take this node out. */
const TAKEN = 'KPNG_PORTAL_TAKEN';

/** How long changes may fail before the process is unhealthy: twice kube-proxy's sync period. */
export const SYNC_FAILURE_LIMIT_MS = 60_000;

/**
 * - healthz: load balancers may send traffic.
 * - livez: a restart would not help.
 * - readyz: the first complete state is applied and the process is not about to end.
 */
export type Probe = 'healthz' | 'livez' | 'readyz';

export interface Verdict {
  readonly status: 200 | 503;
  readonly body: HealthBody;
}

/** The body, with the keys of kube-proxy and reasons when there are some. */
export interface HealthBody {
  /** When the state was last current; null before the first. */
  readonly lastUpdated: string | null;
  readonly currentTime: string;
  readonly nodeEligible: boolean;
  /** Why the answer is 503. */
  readonly failing?: readonly string[];
  /** Problems despite the status 200. */
  readonly degraded?: readonly string[];
}

/** A part of the state that clients cannot use now. */
export interface HealthProblem {
  readonly code: string;
  /** Number of affected service ports or addresses. */
  readonly count: number;
}

/**
 * Derives health from the facts: unhealthy while changes cannot be applied; healthy but degraded while the source is
 * unreachable and the last state is served. Taking every node out of its load balancers because one server is down
 * would only make it worse.
 */
export function evaluate(
  facts: HealthFacts,
  problems: readonly HealthProblem[],
  probe: Probe,
  now: number,
): Verdict {
  const failing = failures(facts, now);
  const degraded = [...degradations(facts), ...summary(problems)];
  if (probe === 'healthz' && facts.nodeIneligible !== undefined) failing.push(facts.nodeIneligible);
  // A restart does not help a process that waits for its first state, or ends.
  if (probe !== 'livez') {
    failing.push(...portalFailures(facts));
    if (facts.firstSyncAt === undefined) failing.push('waiting for the first complete state');
    if (facts.stopping) failing.push('stopping');
    if (facts.draining) failing.push('drained');
  }
  const current = failing.length === 0 && facts.sourceLost === undefined;
  const updated = current && facts.firstSyncAt !== undefined ? now : facts.lastSyncAt;
  return {
    status: failing.length === 0 ? 200 : 503,
    body: {
      lastUpdated: updated === undefined ? null : new Date(updated).toISOString(),
      currentTime: new Date(now).toISOString(),
      nodeEligible: facts.nodeIneligible === undefined,
      ...(failing.length > 0 && { failing }),
      ...(degraded.length > 0 && { degraded }),
    },
  };
}

function failures(facts: HealthFacts, now: number): string[] {
  const { syncFailing, syncPending, firstSyncAt } = facts;
  // A large first state may take long, and a restart would only start over.
  const hangs = firstSyncAt !== undefined && syncPending !== undefined;
  if (hangs && now - syncPending >= SYNC_FAILURE_LIMIT_MS) {
    return [`a change has been waiting since ${iso(syncPending)}`];
  }
  if (syncFailing === undefined || syncFailing.code === TAKEN) return [];
  if (now - syncFailing.since < SYNC_FAILURE_LIMIT_MS) return [];
  return [`changes have failed since ${iso(syncFailing.since)} (${syncFailing.code})`];
}

/** Clients may reach the wrong address, so this takes effect at once. */
function portalFailures({ portalFailing }: HealthFacts): string[] {
  if (portalFailing === undefined || portalFailing.code === TAKEN) return [];
  const { since, code, what } = portalFailing;
  return [`${what} since ${iso(since)} (${code})`];
}

function degradations(facts: HealthFacts): string[] {
  const { syncFailing, sourceLost, portalFailing, portalShared } = facts;
  const reasons: string[] = [];
  if (portalShared !== undefined) {
    const { since, code } = portalShared;
    reasons.push(`another process redirects the same traffic since ${iso(since)} (${code})`);
  }
  if (portalFailing?.code === TAKEN) {
    reasons.push(
      `another process owns the packet rules since ${iso(portalFailing.since)} (${TAKEN})`,
    );
  }
  if (sourceLost !== undefined) {
    const { code, since } = sourceLost;
    reasons.push(`${lossOf(code)} since ${iso(since)} (${code})`);
  }
  if (syncFailing !== undefined) reasons.push(`last change failed (${syncFailing.code})`);
  return reasons;
}

function lossOf(code: string): string {
  if (code === 'KPNG_KUBE_FORBIDDEN') return 'a part of the source is forbidden';
  return code.startsWith('KPNG_STATE_FILE_') ? 'state file not usable' : 'source lost';
}

/** One line per code. It names no service: health is public. */
function summary(problems: readonly HealthProblem[]): string[] {
  const counts = new Map<string, number>();
  for (const { code, count } of problems) counts.set(code, (counts.get(code) ?? 0) + count);
  return [...counts].map(([code, count]) => `${count} not served (${code})`);
}

function iso(time: number): string {
  return new Date(time).toISOString();
}

/** Holds the facts and changes them one by one. */
export class Health {
  #facts = INITIAL_FACTS;
  #problems: () => readonly HealthProblem[] = () => [];
  readonly #wallClock: () => number;

  /** `wallClock`: milliseconds since the epoch. */
  constructor(wallClock: () => number = Date.now) {
    this.#wallClock = wallClock;
  }

  get facts(): HealthFacts {
    return this.#facts;
  }

  evaluate(probe: Probe): Verdict {
    return evaluate(this.#facts, this.#problems(), probe, this.#wallClock());
  }

  /** A state is about to be applied; either of the two next calls follows. */
  syncStarted(): void {
    this.#change({ syncPending: this.#wallClock() });
  }

  /** A complete state is applied. */
  synced(): void {
    const now = this.#wallClock();
    this.#change({
      firstSyncAt: this.#facts.firstSyncAt ?? now,
      lastSyncAt: now,
      syncFailing: undefined,
      syncPending: undefined,
    });
  }

  /** A state could not be applied. */
  syncFailed(code: string): void {
    const since = this.#facts.syncFailing?.since ?? this.#wallClock();
    this.#change({ syncFailing: { since, code }, syncPending: undefined });
  }

  sourceConnected(): void {
    this.#change({ sourceLost: undefined });
  }

  sourceLost(code: string): void {
    const since = this.#facts.sourceLost?.since ?? this.#wallClock();
    this.#change({ sourceLost: { since, code } });
  }

  /** Why load balancers should not use this node; undefined: they may. */
  nodeEligible(ineligible: string | undefined): void {
    this.#change({ nodeIneligible: ineligible });
  }

  /** The portal works. */
  portalWritten(): void {
    if (this.#facts.portalFailing !== undefined) this.#change({ portalFailing: undefined });
  }

  /** The portal failed: `what` names the action, as half a sentence. */
  portalFailed(code: string, what = 'the packet rules could not be written'): void {
    const since = this.#facts.portalFailing?.since ?? this.#wallClock();
    this.#change({ portalFailing: { since, code, what } });
  }

  /** Another process redirects the same traffic in another way; undefined: no longer. */
  portalShared(code: string | undefined): void {
    const since = this.#facts.portalShared?.since ?? this.#wallClock();
    this.#change({ portalShared: code === undefined ? undefined : { since, code } });
  }

  /** Sets the source of problems, read for each response. */
  readProblemsFrom(problems: () => readonly HealthProblem[]): void {
    this.#problems = problems;
  }

  /** The process accepts no new clients, or accepts them again. */
  draining(draining: boolean): void {
    this.#change({ draining });
  }

  stopping(): void {
    this.#change({ stopping: true });
  }

  #change(part: Partial<HealthFacts>): void {
    this.#facts = { ...this.#facts, ...part };
  }
}
