/** Times and sizes of what talks to netsh. Milliseconds and bytes. */

/** How long netsh may take for a listing or one change. A Windows node starts it in about 0.1 s. */
export const NETSH_TIMEOUT_MS = 30_000;

/** How long an address that was added may take until a socket can be bound to it. */
export const USABLE_TIMEOUT_MS = 5000;

/** First wait between two attempts to bind, and the longest one. */
export const USABLE_FIRST_WAIT_MS = 10;
export const USABLE_MAX_WAIT_MS = 250;

/** Addresses that are tried to be bound at the same time. */
export const PROBES_AT_ONCE = 64;

/** Changes that are made one by one after a script has failed, before all the rest counts as failed. */
export const MAX_SINGLE_FAILURES = 8;

/** What netsh or netstat may print. A connection has about 80 bytes, an address 160. */
export const MAX_OUTPUT = 64 * 1024 * 1024;

/** How far two readings of the time of the last boot may differ. The clock may have been set meanwhile. */
export const BOOT_TOLERANCE_MS = 600_000;
