/*
 * Bounds of the UDP path that nobody needs to tune. What operators do tune is in ../limits.ts.
 */

/** Datagrams that wait in the process for one socket, at most, however small they are. */
export const MAX_QUEUED_DATAGRAMS = 64;

/** Refused clients that are remembered in each of two sets, so that each is reported once. */
export const MAX_REFUSED_CLIENTS = 2048;

/** How often the host's addresses are read again while there is a wildcard listener. Milliseconds. */
export const ADDRESS_POLL_MS = 5000;

/** Sessions that a datagram may pass one after the other, when endpoints are services of this process. */
export const MAX_HOPS = 8;
