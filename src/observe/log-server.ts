import * as server from '../server/events.ts';
import { httpLimitReached } from '../util/http-limits.ts';
import { logRule, type LogRule } from './log-rules.ts';

/** Log lines of the API server and of the HTTP servers. */
export const SERVER_RULES: readonly LogRule[] = [
  logRule({
    channel: server.serverListening,
    severity: 'info',
    v: 0,
    message: 'Serving the API',
    keys: ({ address, security }) => ({ address, security }),
  }),
  logRule({
    channel: server.serverListening,
    severity: 'warn',
    v: 0,
    message: ({ exposed, security }) =>
      exposed && security === 'plaintext'
        ? 'The API is served in plaintext: whoever can connect can read the state of the cluster'
        : undefined,
    keys: ({ address }) => ({ address }),
  }),
  logRule({
    channel: server.watchStarted,
    severity: 'info',
    v: 1,
    message: 'A client watches',
    keys: ({ api, peer, watchers }) => ({ api, client: peer, watchers }),
    limited: true,
  }),
  logRule({
    channel: server.watchEnded,
    severity: 'info',
    v: 1,
    message: 'A client has left',
    keys: ({ api, peer, nodeName, syncs, watchers, error }) => ({
      api,
      client: peer,
      ...(nodeName !== '' && { node: nodeName }),
      syncs,
      watchers,
      ...(error !== undefined && { err: error }),
    }),
    limited: true,
  }),
  logRule({
    channel: server.handshakeFailed,
    severity: 'warn',
    v: 0,
    message: 'A TLS handshake failed',
    keys: ({ peer, error }) => ({ client: peer, err: error }),
    limited: true,
  }),
  logRule({
    channel: server.serverLimitReached,
    severity: 'warn',
    v: 0,
    message: 'A client was turned away: a limit is reached',
    keys: ({ limit, value, peer }) => ({ limit, value, ...(peer !== '' && { client: peer }) }),
    limited: true,
  }),
  logRule({
    channel: server.tlsFilesChanged,
    severity: 'info',
    v: 0,
    message: ({ error }) =>
      error === undefined
        ? 'The TLS files have changed and are in use for new connections'
        : undefined,
    keys: ({ validUntil }) => ({
      ...(validUntil !== undefined && { validUntil: new Date(validUntil).toISOString() }),
    }),
  }),
  logRule({
    channel: server.tlsFilesChanged,
    severity: 'warn',
    v: 0,
    message: ({ error }) =>
      error && 'The TLS files have changed and cannot be used; the former ones stay in use',
    keys: ({ error }) => ({ ...(error !== undefined && { err: error }) }),
  }),
  logRule({
    channel: httpLimitReached,
    severity: 'warn',
    v: 0,
    message: 'HTTP connection closed: limit reached',
    keys: ({ limit, remoteAddress }) => ({
      limit,
      ...(remoteAddress !== '' && { client: remoteAddress }),
    }),
    limited: true,
  }),
];
