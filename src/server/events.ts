/** Events of the API server, published on diagnostics channels. */
import type { KpngError } from '../errors.ts';
import { typedChannel } from '../util/channel.ts';

export type ApiName = 'local' | 'global';

/** How a server is secured. `mtls`: clients have to present a certificate. */
export type Security = 'plaintext' | 'tls' | 'mtls';

export const serverListening = typedChannel<{
  /** As the flag `--listen` spells it, with the real port. */
  address: string;
  security: Security;
  /** Whether any client that reaches one of the host's addresses can read the state of the cluster. */
  exposed: boolean;
}>('server:listening');

export const watchStarted = typedChannel<{
  api: ApiName;
  /** Address of the client, or `unix` for one on the same host. */
  peer: string;
  /** Watch calls at once, this one included. */
  watchers: number;
}>('server:watch-started');

export const watchEnded = typedChannel<{
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
}>('server:watch-ended');

/** Operations were sent to clients: all since the last such event. */
export const operationsSent = typedChannel<{
  /** Set, Delete, Sync and Reset, of both APIs. */
  operations: number;
}>('server:operations-sent');

/** A connection ended before its TLS handshake completed, such as that of a client without a certificate. */
export const handshakeFailed = typedChannel<{
  peer: string;
  error: Error;
}>('server:handshake-failed');

/** A client was refused because a limit is reached. */
export const serverLimitReached = typedChannel<{
  /** The name of the flag. */
  limit: string;
  value: number;
  peer: string;
}>('server:limit-reached');

/** The TLS files have changed. */
export const tlsFilesChanged = typedChannel<{
  /** Why they are not used; undefined: they are. */
  error: KpngError | undefined;
  /** Until when the server's certificate is valid: milliseconds since the epoch. */
  validUntil: number | undefined;
}>('server:tls-files-changed');
