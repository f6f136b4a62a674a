import { DEFAULT_MAX_HISTORY } from '../store/global-store.ts';

/** The limits of the API server that have a flag, or that tests change. See docs/reference/limits.md. */
export interface ServerLimits {
  /** Connections at once. */
  readonly maxConnections: number;
  /** Watch calls at once, of both APIs together. */
  readonly maxWatchers: number;
  /** Calls at once on one connection. */
  readonly maxStreams: number;
  /** Maximum size of a message from a client. A request is a node's name. Bytes. */
  readonly maxMessageSize: number;
  /** Endpoints of previous states kept for clients that lag behind. */
  readonly maxHistory: number;
  /** Idle time after which a connection is probed. Milliseconds. */
  readonly keepAliveMs: number;
  /** A connection that has not answered a probe is closed after this long. Milliseconds. */
  readonly keepAliveTimeoutMs: number;
  /** A connection without a call is closed after this long. Milliseconds. */
  readonly idleMs: number;
}

export const DEFAULT_SERVER_LIMITS: ServerLimits = {
  maxConnections: 20_000,
  maxWatchers: 10_000,
  maxStreams: 1000,
  maxMessageSize: 64 * 1024,
  maxHistory: DEFAULT_MAX_HISTORY,
  keepAliveMs: 60_000,
  keepAliveTimeoutMs: 20_000,
  idleMs: 300_000,
};

/** Requests of one client that are read ahead: clients need not send one before the previous response. */
export const MAX_REQUESTS_AHEAD = 8;

/** Time for a TLS handshake. Milliseconds. */
export const HANDSHAKE_MS = 10_000;
