import { createServer, type Server } from 'node:https';
import type { Clock } from '../util/clock.ts';
import { type HttpResponse, type CreateServer, plain } from '../util/http-connections.ts';
import { peerText } from '../util/host-port.ts';
import {
  followTls,
  isPlaintext,
  readTls,
  serverContext,
  type TlsFiles,
  type TlsFlags,
} from '../util/tls-files.ts';
import type { Log } from './log.ts';
import type { Metrics } from './metrics.ts';
import { PROBES } from './verdict.ts';

/**
 * Returns the response for a client without access to a page, by its path and `authorization` header; undefined: it
 * has access.
 */
export type Guard = (path: string, authorization: string) => Promise<HttpResponse | undefined>;

export interface GuardOptions {
  /** Whether the owner of a token may see a page. Rejects if that cannot be determined. */
  readonly review: (
    token: string,
    path: string,
  ) => Promise<'allowed' | 'unauthenticated' | 'forbidden'>;
  readonly metrics: Pick<Metrics, 'record'> | undefined;
  readonly log: Pick<Log, 'warn'>;
  readonly clock: Clock;
}

/** Minimum interval between log lines about failed reviews. Milliseconds. */
const LOG_INTERVAL_MS = 10_000;

/** Guards pages by bearer token, but not those of probes, which have none. If the review fails, access is denied. */
export function guardPages({ review, metrics, log, clock }: GuardOptions): Guard {
  let loggedAt = Number.NEGATIVE_INFINITY;
  const decide = async (path: string, authorization: string): Promise<keyof typeof REFUSALS> => {
    const token = /^Bearer +(\S+)$/i.exec(authorization)?.[1];
    if (token === undefined) return 'unauthenticated';
    try {
      return await review(token, path);
    } catch (err) {
      if (clock.now() - loggedAt >= LOG_INTERVAL_MS) {
        loggedAt = clock.now();
        log.warn('Token review failed; request for metrics refused', { err });
      }
      return 'unavailable';
    }
  };
  return async (path, authorization) => {
    if (PROBES.some((probe) => path === `/${probe}`)) return undefined;
    const result = await decide(path, authorization);
    metrics?.record('authentications_total', 1, { result });
    return REFUSALS[result];
  };
}

const REFUSALS = {
  allowed: undefined,
  unauthenticated: {
    ...plain(401, 'A bearer token of the cluster is required.\n'),
    headers: { 'www-authenticate': 'Bearer' },
  },
  forbidden: plain(403, 'The token does not allow getting this page.\n'),
  unavailable: plain(503, 'The token could not be checked with the cluster; see the log.\n'),
} as const satisfies Record<string, HttpResponse | undefined>;

interface HttpsOptions {
  /** Which server it is, for the log. */
  readonly name: string;
  readonly files: TlsFiles;
  readonly flags: TlsFlags;
  readonly clock: Clock;
  readonly log: Pick<Log, 'info' | 'warn'>;
}

/** Time limit for a TLS handshake. Milliseconds. */
const HANDSHAKE_TIMEOUT_MS = 5000;

/**
 * Reads certificate and key, and returns what creates the server; it reloads the files when they change, until it is
 * closed. Rejects with KPNG_TLS_FILE. Undefined: no files are configured.
 */
export async function createHttps(options: HttpsOptions): Promise<CreateServer | undefined> {
  const { name, files, flags, clock, log } = options;
  const read = await readTls(files, flags);
  if (read === undefined) return undefined;
  let material = read;
  let server: Server | undefined;
  let isReported = false;
  const end = followTls({
    files,
    flags,
    material,
    clock,
    onChanged(latter) {
      material = latter;
      server?.setSecureContext(serverContext(material));
      log.info('TLS files changed; the new ones are in use', { server: name });
    },
    onFailed: (err) =>
      log.warn('TLS files not usable; the previous ones stay in use', { server: name, err }),
  });
  return (times, listener) => {
    const settings = { ...times, handshakeTimeout: HANDSHAKE_TIMEOUT_MS };
    server = createServer({ ...settings, ...serverContext(material) }, listener);
    server.once('close', end);
    server.on('tlsClientError', (error, socket) => {
      if (isReported || !isPlaintext(error)) return;
      isReported = true;
      const keys = { server: name, client: peerText(socket) };
      log.warn('Client used http:// on an HTTPS port; it must use https://', keys);
    });
    return server;
  };
}
