/** Events of the API server, published on diagnostics channels. */
import type { KpngError } from '../errors.ts';
import { typedChannel } from '../util/channel.ts';

export type ApiName = 'local' | 'global';

/** How a server is secured. `mtls`: clients have to present a certificate. */
export type Security = 'plaintext' | 'tls' | 'mtls';

export interface ServerListening {
  /** As the flag `--listen` spells it, with the real port. */
  address: string;
  security: Security;
  /** Whether any client that reaches one of the host's addresses can read the state of the cluster. */
  exposed: boolean;
}

export interface WatchStarted {
  api: ApiName;
  /** Address of the client, or `unix` for one on the same host. */
  peer: string;
  /** Watch calls at once, this one included. */
  watchers: number;
}

export interface WatchEnded {
  api: ApiName;
  peer: string;
  /** Of the last request; empty for the global API. */
  nodeName: string;
  /** Change sets that were sent. */
  syncs: number;
  /** Watch calls still open. */
  watchers: number;
  /** Why the server ended it; undefined: the client did. */
  error: KpngError | undefined;
}

/** Operations were sent to clients: all since the last such event. */
export interface OperationsSent {
  /** Set, Delete, Sync and Reset, of both APIs. */
  operations: number;
}

/** A connection ended before its TLS handshake completed, such as that of a client without a certificate. */
export interface HandshakeFailed {
  peer: string;
  error: Error;
}

/** A client was refused because a limit is reached. */
export interface ServerLimitReached {
  /** The name of the flag. */
  limit: string;
  value: number;
  peer: string;
}

/** The TLS files have changed. */
export interface TlsFilesChanged {
  /** Why they are not used; undefined: they are. */
  error: KpngError | undefined;
  /** Until when the server's certificate is valid: milliseconds since the epoch. */
  validUntil: number | undefined;
}

export const serverListening = typedChannel<ServerListening>('server:listening');
export const watchStarted = typedChannel<WatchStarted>('server:watch-started');
export const watchEnded = typedChannel<WatchEnded>('server:watch-ended');
export const operationsSent = typedChannel<OperationsSent>('server:operations-sent');
export const handshakeFailed = typedChannel<HandshakeFailed>('server:handshake-failed');
export const serverLimitReached = typedChannel<ServerLimitReached>('server:limit-reached');
export const tlsFilesChanged = typedChannel<TlsFilesChanged>('server:tls-files-changed');
