import { DEFAULT_MAX_HISTORY } from '../store/table.ts';

/** The limits of the API server that have a flag, or that tests change. See docs/reference/limits.md. */
export const DEFAULT_SERVER_LIMITS = {
  /** Connections at once. */
  maxConnections: 20_000,
  /** Watch calls at once, of both APIs together. */
  maxWatchers: 10_000,
  /** Calls at once on one connection. */
  maxStreams: 1000,
  /** Maximum size of a message from a client. A request is a node's name. Bytes. */
  maxMessageSize: 64 * 1024,
  /** Endpoints of previous states kept for clients that lag behind. */
  maxHistory: DEFAULT_MAX_HISTORY,
  /** Idle time after which a connection is probed. Milliseconds. */
  keepAliveMs: 60_000,
  /** A connection that has not answered a probe is closed after this long. Milliseconds. */
  keepAliveTimeoutMs: 20_000,
  /** A connection without a call is closed after this long. Milliseconds. */
  idleMs: 300_000,
};

export type ServerLimits = Readonly<typeof DEFAULT_SERVER_LIMITS>;

/** Requests of one client that are read ahead: clients need not send one before the previous response. */
export const MAX_REQUESTS_AHEAD = 8;

/** Time for a TLS handshake. Milliseconds. */
export const HANDSHAKE_MS = 10_000;
