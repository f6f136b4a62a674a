import { once } from 'node:events';
import { chmodSync, lstatSync, unlinkSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { Server as TlsServer } from 'node:tls';
import { KpngError, messageOf } from '../errors.ts';
import { listenCode, listenFailure } from '../util/listen-failure.ts';
import { isServed, listenPrivately } from '../util/socket-file.ts';
import { serverContext, type TlsMaterial } from '../util/tls-files.ts';
import { serverLimitReached } from './events.ts';
import { formatListen, type ListenAddress } from './listen-address.ts';
import { peerOf, Shares } from './shares.ts';
import { createTlsServer } from './tls.ts';

export interface ListenerOptions {
  readonly address: ListenAddress;
  /** Undefined: plaintext. */
  readonly tls: TlsMaterial | undefined;
  readonly maxConnections: number;
  /** A connection is ready for HTTP/2. */
  readonly onConnection: (socket: Socket) => void;
}

export interface Listener {
  /** With the real port. */
  readonly address: ListenAddress;
  readonly connections: number;
  /** Uses these files for further handshakes. Not for a plaintext listener. */
  replaceTls(tls: TlsMaterial): void;
  /** Stops accepting connections; resolves when the existing ones have ended. Idempotent. */
  close(): Promise<void>;
  /** Closes the connections as well. Idempotent. */
  destroy(): void;
}

/** As in kpng: processes of the same group may connect. */
const SOCKET_MODE = 0o770;

/**
 * Listens on a TCP address or on a unix socket. A stale socket file is replaced; one with a listener, and a file of
 * another kind, are left alone. Fails with a KPNG_ code of `listenCode`.
 */
export async function listen(options: ListenerOptions): Promise<Listener> {
  const { address, maxConnections, tls, onConnection } = options;
  /** A connection was closed because its client, or all clients together, reached the limit. */
  const refused = (peer = ''): void =>
    serverLimitReached.publish({ limit: 'max-api-connections', value: maxConnections, peer });
  if (address.kind === 'unix') await removeStaleSocket(address);
  const sockets = new Set<Socket>();
  let closed: Promise<void> | undefined;
  const shares = new Shares(maxConnections);
  const server =
    tls === undefined
      ? createServer((socket) => {
          if (!socket.destroyed) onConnection(socket);
        })
      : createTlsServer(tls, onConnection);
  // Runs before any other handler.
  server.prependListener('connection', (socket: Socket) => {
    socket.on('error', () => {});
    const release = shares.take(peerOf(socket.remoteAddress, socket));
    if (release === undefined) {
      refused(socket.remoteAddress);
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
  server.maxConnections = maxConnections;
  server.on('drop', (data) => refused(data?.remoteAddress));
  try {
    await bind(server, address);
  } catch (cause) {
    throw await listenError(address, cause);
  }
  // A connection could not be accepted; Node keeps accepting.
  server.on('error', () => {});
  const close = (): Promise<void> => {
    closed ??= new Promise((resolve) => server.close(() => resolve()));
    return closed;
  };
  return {
    address: withRealPort(server, address),
    get connections() {
      return sockets.size;
    },
    replaceTls(tls) {
      if (server instanceof TlsServer) server.setSecureContext(serverContext(tls));
    },
    close,
    destroy() {
      void close();
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
  const { code, reason } =
    address.kind === 'tcp'
      ? await listenFailure(error, address)
      : { code: listenCode(error.code ?? ''), reason: messageOf(error) };
  const message = `The API cannot be served on ${formatListen(address)}: ${reason}`;
  return new KpngError(code, message, { cause });
}
