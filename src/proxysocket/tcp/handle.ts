/**
 * What this program uses of Node's TCP handles beyond the documentation. All of it is in this file,
 * and none of it is needed: `takeConnections` says whether it can be had, and the documented way
 * ('connection' and 'data' events) does the same at a higher price.
 *
 * What it is for: `onread`, which lets a socket read into a buffer of ours, is documented for
 * `net.connect` but not for accepted sockets. A handle that was accepted can be given to a new
 * `net.Socket` together with `onread`; Node itself makes its sockets that way. Taking the handle
 * before Node has made a socket for it also saves that socket, and a client that is refused costs
 * no socket at all.
 */
import { getSystemErrorName } from 'node:util';
import { Socket, type OnReadOpts, type Server, type SocketConstructorOpts } from 'node:net';

/** An address as handles give it. */
export interface HandleAddress {
  address?: string;
  port?: number;
}

/** A TCP handle, as far as it is used here. Numbers returned are 0 or a libuv error. */
export interface TcpHandle {
  getpeername(out: HandleAddress): number;
  getsockname(out: HandleAddress): number;
  setNoDelay(enable: boolean): number;
  setKeepAlive(enable: boolean, seconds: number): number;
  reset(): number;
  close(): void;
}

interface ServerHandle extends TcpHandle {
  onconnection: (status: number, handle: TcpHandle | undefined) => void;
}

const METHODS = ['getpeername', 'getsockname', 'setNoDelay', 'setKeepAlive', 'reset', 'close'];

function handleOf(holder: object): unknown {
  return '_handle' in holder ? holder._handle : undefined;
}

function isServerHandle(handle: unknown): handle is ServerHandle {
  if (typeof handle !== 'object' || handle === null) return false;
  const members = handle as Record<string, unknown>;
  return [...METHODS, 'onconnection'].every((name) => typeof members[name] === 'function');
}

/** Linux gives accepted sockets the options of the socket that listens. */
const INHERITS = process.platform === 'linux';

/**
 * Takes accepted handles from a listening server before it makes sockets for them; they have no-delay
 * and keepalive set. Returns false, and changes nothing, when this Node cannot do it.
 */
export function takeConnections(
  server: Server,
  keepAliveMs: number,
  accepted: (handle: TcpHandle) => void,
): boolean {
  const handle = handleOf(server);
  if (!isServerHandle(handle)) return false;
  const seconds = Math.trunc(keepAliveMs / 1000);
  if (INHERITS) setOptions(handle, seconds);
  handle.onconnection = (status, connection) => {
    if (connection === undefined || status !== 0) {
      const code = getSystemErrorName(status);
      server.emit('error', Object.assign(new Error(`accept ${code}`), { code }));
      return;
    }
    if (!INHERITS) setOptions(connection, seconds);
    accepted(connection);
  };
  return true;
}

/** Bytes of a socket's writes that the kernel has not taken yet, exactly; 0 where Node does not tell. */
export function queuedBytes(socket: Socket): number {
  const handle = handleOf(socket) as { readonly writeQueueSize?: number } | null | undefined;
  return handle?.writeQueueSize ?? 0;
}

/** A socket for an accepted handle that reads into buffers of ours. It does not read yet. */
export function socketOf(handle: TcpHandle, onread: OnReadOpts): Socket {
  const options = { handle, manualStart: true, allowHalfOpen: true, onread };
  // Node takes any TCP handle here, but only its bound sockets are in the types.
  return new Socket(options as unknown as SocketConstructorOpts);
}

function setOptions(handle: TcpHandle, keepAliveSeconds: number): void {
  handle.setNoDelay(true);
  handle.setKeepAlive(true, keepAliveSeconds);
}
