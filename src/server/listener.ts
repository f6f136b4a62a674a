import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { chmodSync, lstatSync, unlinkSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { createServer as createSecureServer, Server as TlsServer } from 'node:tls';
import { KpngError } from '../errors.ts';
import { listenFailure } from '../util/listen-failure.ts';
import { isServed, listenPrivately } from '../util/socket-file.ts';
import type { Clock } from '../util/clock.ts';
import { peerText } from '../util/host-port.ts';
import {
  followTls,
  isPlaintext,
  LISTEN_TLS_FLAGS,
  readTls,
  serverContext,
  type TlsFiles,
  type TlsMaterial,
} from '../util/tls-files.ts';
import { handshakeFailed, serverLimitReached, tlsFilesChanged, type Security } from './events.ts';
import { HANDSHAKE_MS } from './limits.ts';
import { formatListen, type ListenAddress } from './listen-address.ts';
import { peerOf, Shares } from './shares.ts';

export interface ListenerOptions {
  readonly address: ListenAddress;
  /** None: plaintext. With CAs, clients need a certificate. Changed files count for further connections. */
  readonly tls: TlsFiles;
  /** When the files are checked. */
  readonly clock: Clock | undefined;
  /** At once; each client has a share of them, see `Shares`. */
  readonly maxConnections: number;
  /** A connection is ready for HTTP/2. */
  readonly onConnection: (socket: Socket) => void;
}

/** As in kpng: processes of the same group may connect. */
const SOCKET_MODE = 0o770;

/**
 * Listens on a TCP address or on a unix socket. A stale socket file is replaced; one with a listener, and a file of
 * another kind, are left alone. Fails with a KPNG_ code of `listenFailure`, or KPNG_TLS_FILE.
 */
export async function listen(options: ListenerOptions) {
  const { address, maxConnections, clock, tls: files, onConnection } = options;
  const tls = await readTls(files, LISTEN_TLS_FLAGS);
  if (address.kind === 'unix') await removeStaleSocket(address);
  const sockets = new Set<Socket>();
  const shares = new Shares(maxConnections);
  const server = tls === undefined ? createServer() : createTlsServer(tls);
  server.on(tls === undefined ? 'connection' : 'secureConnection', (socket: Socket) => {
    socket.on('error', () => {});
    if (!socket.destroyed) onConnection(socket);
  });
  // Runs before any other handler.
  server.prependListener('connection', (socket: Socket) => {
    socket.on('error', () => {});
    const { remoteAddress } = socket;
    const release = shares.take(peerOf(remoteAddress, socket));
    if (release === undefined) {
      const reached = { limit: 'max-api-connections', value: maxConnections };
      serverLimitReached.publish({ ...reached, peer: remoteAddress ?? '' });
      socket.destroy();
      return;
    }
    sockets.add(socket);
    socket.once('close', () => {
      release();
      sockets.delete(socket);
    });
    socket.setNoDelay(true);
  });
  try {
    await bind(server, address);
  } catch (cause) {
    throw await listenError(address, cause);
  }
  // A connection could not be accepted; Node keeps accepting.
  server.on('error', () => {});
  const ended = new Promise<void>((resolve) => server.once('close', () => resolve()));
  const unfollow =
    tls &&
    followTls({
      files,
      flags: LISTEN_TLS_FLAGS,
      material: tls,
      clock,
      onChanged(material) {
        if (server instanceof TlsServer) server.setSecureContext(serverContext(material));
        const crt = material.identity?.crt;
        const validUntil = crt && Date.parse(new X509Certificate(crt).validTo);
        tlsFilesChanged.publish({ error: undefined, validUntil: validUntil || undefined });
      },
      onFailed: (error) => tlsFilesChanged.publish({ error, validUntil: undefined }),
    });
  const security: Security =
    tls === undefined ? 'plaintext' : tls.ca === undefined ? 'tls' : 'mtls';
  return {
    /** With the real port. */
    address: withRealPort(server, address),
    security,
    /** Stops accepting connections; resolves when the existing ones have ended. Idempotent. */
    async close(): Promise<void> {
      server.close();
      await ended;
      unfollow?.();
    },
    /** Closes the connections as well. Idempotent. */
    destroy(): void {
      unfollow?.();
      server.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}

async function bind(server: Server, address: ListenAddress): Promise<void> {
  if (address.kind === 'tcp') {
    const { host, port, family } = address;
    const every = family === 4 ? { host: '0.0.0.0' } : family === 6 ? { host: '::' } : {};
    server.listen({ port, ipv6Only: family === 6, ...(host === '' ? every : { host }) });
    await once(server, 'listening');
    return;
  }
  await listenPrivately(server, address.path);
  chmodSync(address.path, SOCKET_MODE);
}

function withRealPort(server: Server, address: ListenAddress): ListenAddress {
  const bound = server.address();
  if (address.kind === 'unix' || bound === null || typeof bound === 'string') return address;
  return { ...address, port: bound.port };
}

async function removeStaleSocket(address: ListenAddress & { kind: 'unix' }): Promise<void> {
  const found = lstatSync(address.path, { throwIfNoEntry: false });
  if (found === undefined) return;
  const fail = (problem: string): never => {
    const message = `${formatListen(address)}: ${problem}.`;
    throw new KpngError('KPNG_LISTEN_ADDRESS_IN_USE', message);
  };
  if (!found.isSocket()) fail('a file of that name exists and is not a socket');
  if (await isServed(address.path)) fail('another process listens on it');
  unlinkSync(address.path);
}

async function listenError(address: ListenAddress, cause: unknown): Promise<KpngError> {
  const error = cause as NodeJS.ErrnoException;
  const failure = await listenFailure(error, address.kind === 'tcp' ? address : undefined);
  const message = `The API cannot be served on ${formatListen(address)}: ${failure.message}`;
  return new KpngError(failure.code, message, { cause });
}

const NO_TLS =
  'the client does not speak TLS, which this server requires; set --api-client-tls-ca, for example';

/** A TLS server for HTTP/2. Publishes failed handshakes. */
function createTlsServer(tls: TlsMaterial): Server {
  const server = createSecureServer({
    ...serverContext(tls),
    ALPNProtocols: ['h2'],
    handshakeTimeout: HANDSHAKE_MS,
  });
  server.on('tlsClientError', (error, socket) => {
    // OpenSSL's error for a client without TLS is hard to recognize.
    const described = isPlaintext(error) ? new Error(NO_TLS) : error;
    handshakeFailed.publish({ error: described, peer: peerText(socket) });
  });
  return server;
}
