import { once } from 'node:events';
import {
  connect,
  createServer,
  Socket,
  type AddressInfo,
  type OnReadOpts,
  type Server,
  type SocketConstructorOpts,
} from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

/**
 * The only use of undocumented parts of Node's TCP: Node offers no `onread` for accepted sockets, so each read of
 * one allocates 64 KiB, and uploads cost four times the CPU. This replaces `onconnection` of the handle of a
 * listening server, and makes the socket with `onread` itself. `canAcceptWithOnread` tries it once; where it fails,
 * the 'connection' event does the same at a higher cost.
 */

/** Node's handle of a socket, as far as it is used here. Numbers are 0 or a libuv error. */
interface Handle {
  setNoDelay(enable: boolean): number;
  setKeepAlive(enable: boolean, seconds: number): number;
}

interface ServerHandle extends Handle {
  onconnection: (status: number, handle: Handle | undefined) => void;
}

export type MakeSocket = (onread: OnReadOpts) => Socket;

/** Linux gives accepted sockets the options of the socket that listens. */
const INHERITS = process.platform === 'linux';

/** Takes accepted clients from a listening server; they have no-delay and keepalive set. False: this Node cannot. */
export function acceptWithOnread(
  server: Server,
  keepAliveMs: number,
  accepted: (makeSocket: MakeSocket) => void,
): boolean {
  const handle = handleOf(server);
  if (handle === undefined) return false;
  const seconds = Math.trunc(keepAliveMs / 1000);
  if (INHERITS) setOptions(handle, seconds);
  handle.onconnection = (status, connection) => {
    if (status !== 0 || connection === undefined) {
      server.emit('error', new Error(`accept failed: libuv error ${status}`));
      return;
    }
    if (!INHERITS) setOptions(connection, seconds);
    accepted((onread) => {
      const options = { handle: connection, allowHalfOpen: true, pauseOnCreate: true, onread };
      return new Socket(options as unknown as SocketConstructorOpts);
    });
  };
  return true;
}

let probed: Promise<boolean> | undefined;

/** Whether a client's byte arrives in our buffer; probed over loopback, once in a process. */
export function canAcceptWithOnread(): Promise<boolean> {
  probed ??= probe().catch(() => false);
  return probed;
}

const PROBE_MS = 1000;

async function probe(): Promise<boolean> {
  const server = createServer().listen({ host: '127.0.0.1', port: 0, exclusive: true });
  const sockets: Socket[] = [];
  try {
    await once(server, 'listening');
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const watched = (socket: Socket): Socket => {
      sockets.push(socket);
      return socket.on('error', () => resolve(false));
    };
    const buffer = Buffer.alloc(1);
    const callback = (length: number): boolean => {
      resolve(length === 1 && buffer[0] === 1);
      return false;
    };
    const isTaken = acceptWithOnread(server, 1000, (makeSocket) => {
      watched(makeSocket({ buffer, callback })).read(0);
    });
    if (!isTaken) return false;
    const { port } = server.address() as AddressInfo;
    watched(connect(port, '127.0.0.1')).write(Buffer.of(1));
    return await Promise.race([promise, delay(PROBE_MS, false, { ref: false })]);
  } finally {
    for (const socket of sockets) socket.destroy();
    server.close();
  }
}

function handleOf(server: Server): ServerHandle | undefined {
  const { _handle: handle } = server as { readonly _handle?: ServerHandle | null };
  const names = ['onconnection', 'setNoDelay', 'setKeepAlive'] as const;
  return handle && names.every((name) => typeof handle[name] === 'function') ? handle : undefined;
}

function setOptions(handle: Handle, keepAliveSeconds: number): void {
  handle.setNoDelay(true);
  handle.setKeepAlive(true, keepAliveSeconds);
}
