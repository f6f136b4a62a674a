/** Time and size limits of the portals that write rules. Milliseconds and bytes. */
import type { BackoffPolicy } from '../util/backoff.ts';

/** Time limit for a transaction. 10,000 service ports need up to a second, with iptables about three. */
export const WRITE_TIMEOUT_MS = 30_000;

/** Time limit for a canary's connection through the rules. */
export const CANARY_TIMEOUT_MS = 300;

/** Connections in a row that must time out before the rules count as gone. */
export const CANARY_MISSES = 3;

/** How long another process must have had the rules before that is reported: a hand-over ends sooner. */
export const TAKEN_REPORT_MS = 5000;

/** How often the host's addresses are read. */
export const ADDRESS_INTERVAL_MS = 2000;

/** Transactions tried to find the service ports that the kernel rejects. */
export const MAX_TRIALS = 100;

/** Delays before failed writes, and service ports and addresses rejected by the kernel, are retried. */
export const WRITE_RETRY: BackoffPolicy = {
  initialMs: 2_000,
  maxMs: 600_000,
  factor: 2,
  jitter: 0.2,
};

/** Addresses whose UDP flows are listed one by one. */
export const MAX_FLOW_ADDRESSES = 4;

/** Maximum number of removals of UDP flows after one change. Each walks through the kernel's whole table. */
export const MAX_FLOW_COMMANDS = 256;

/** How long a change waits for these removals before further ones are written. Milliseconds. */
export const FLOW_WAIT_MS = 500;

/** Maximum size of the list of UDP flows. About 160 bytes each. */
export const MAX_FLOW_LIST = 64 * 1024 * 1024;

/** What each address of a change adds to its time limit. */
export const ADDRESS_WRITE_MS = 10;

/** Maximum output of a program that lists addresses or connections. About 160 bytes each. */
export const MAX_ADDRESS_LIST = 64 * 1024 * 1024;

/** Service addresses probed in each check of the address portal. A probe takes 20 µs. */
export const PROBES_PER_CHECK = 32;

/** Minimum interval between the address portal's listings of the host's addresses, and of unused ones' connections. */
export const LISTING_INTERVAL_MS = 5000;

/** Maximum share of time for that. */
export const LISTING_SHARE = 0.005;

/** How long connections may keep an unused address. */
export const MAX_LINGER_MS = 600_000;

/** How long iptables waits for the lock. Seconds. */
export const LOCK_WAIT_S = 5;

/** Maximum size of the list of all rules of one family. About 300 bytes each. */
export const MAX_RULE_LIST = 256 * 1024 * 1024;

/** Maximum number of comparisons for a removal (iptables compares a whole chain), as a multiple of all rules. */
export const MAX_COMPARISONS = 20;

/** Intervals of comparing the rules with those written. */
export interface AuditPolicy {
  readonly intervalMs: number;
  /** A comparison that takes longer runs less often in proportion. */
  readonly goalMs: number;
  readonly maxMs: number;
}

/** A canary, or binding some of the addresses of the address portal. */
export const CANARY_AUDIT: AuditPolicy = { intervalMs: 500, goalMs: Infinity, maxMs: 500 };

/** Full comparison, since a canary passes only one rule. At most 0.5 % of a CPU. */
export const FULL_AUDIT: AuditPolicy = { intervalMs: 60_000, goalMs: 300, maxMs: 3_600_000 };

/** The same for iptables, and on small nodes more often, since the canary does not pass all chains. */
export const IPTABLES_AUDIT: AuditPolicy = { intervalMs: 5000, goalMs: 60, maxMs: 60_000 };

/** The routes of marked packets, which no canary passes. Each takes a few milliseconds of a CPU. */
export const ROUTE_AUDIT: AuditPolicy = { intervalMs: 15_000, goalMs: 250, maxMs: 60_000 };

/** Time limit of the connection that decides whether packets can be delivered unchanged, and of each program for it. */
export const TRIAL = { limitMs: 1000 };

/** Maximum factor by which the interval grows while damage cannot be repaired. */
export const MAX_AUDIT_BACKOFF = 64;
