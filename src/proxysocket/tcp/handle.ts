/**
 * What this program uses of Node's TCP handles beyond the documentation. All of it is in this file and in
 * `stream-calls.ts`, and none of it is needed: `takeConnections` says whether it can be had, and the
 * documented way (`net.connect`, 'connection' and 'data' events) does the same at a higher price.
 *
 * What it is for: a `net.Socket` costs more than all of what a relay does with it, and an accepted one can
 * not be told to read into a buffer of ours. Taking the handle before Node has made a socket for it saves
 * that, and a client that is refused costs no socket at all.
 */
import { getSystemErrorName } from 'node:util';
import type { Server } from 'node:net';
import type { RelaySocket } from './relay-socket.ts';
import type { ConnectRequest, ShutdownRequest, StreamCalls, WriteRequest } from './stream-calls.ts';
import { streamCalls } from './stream-calls.ts';

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
  reset(closed?: () => void): number;
  close(closed?: () => void): void;
  connect(request: ConnectRequest, address: string, port: number): number;
  connect6(request: ConnectRequest, address: string, port: number): number;
  readStart(): number;
  readStop(): number;
  useUserBuffer(buffer: Buffer): void;
  writeBuffer(request: WriteRequest, chunk: Buffer): number;
  shutdown(request: ShutdownRequest): number;
  /** Bytes that the kernel has not taken yet. */
  readonly writeQueueSize: number;
  /** Called with each read. What it returns is the buffer for the next one, unless undefined. */
  onread: () => Buffer | undefined;
}

interface ServerHandle extends TcpHandle {
  onconnection: (status: number, handle: TcpHandle | undefined) => void;
}

const METHODS = [
  'getpeername',
  'getsockname',
  'setNoDelay',
  'setKeepAlive',
  'reset',
  'close',
  'connect',
  'connect6',
  'readStart',
  'readStop',
  'useUserBuffer',
  'writeBuffer',
  'shutdown',
];

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
  accepted: (handle: TcpHandle, calls: StreamCalls) => void,
): boolean {
  const calls = streamCalls();
  const handle = handleOf(server);
  if (calls === undefined || !isServerHandle(handle)) return false;
  const seconds = Math.trunc(keepAliveMs / 1000);
  if (INHERITS) setOptions(handle, seconds);
  handle.onconnection = (status, connection) => {
    if (connection === undefined || status !== 0) {
      const code = getSystemErrorName(status);
      server.emit('error', Object.assign(new Error(`accept ${code}`), { code }));
      return;
    }
    if (!INHERITS) setOptions(connection, seconds);
    accepted(connection, calls);
  };
  return true;
}

/**
 * Closes a handle with a reset; not while a shutdown is pending, which libuv refuses. `closed` is called
 * once, in any case.
 *
 * A reset sets SO_LINGER. When that fails, Node takes the handle for closing all the same: nothing can close
 * it from then on, and its descriptor stays open. So a socket that may refuse an option (`mayRefuse`; on
 * Linux no TCP socket does) is first asked with an option that it has already, and then only closed. Where
 * the reset fails nevertheless, `closed` lets those who wait for the end go on.
 */
export function resetHandle(
  handle: TcpHandle,
  closed?: () => void,
  mayRefuse = process.platform !== 'linux',
): void {
  if (mayRefuse && handle.setNoDelay(true) !== 0) {
    handle.close(closed);
  } else if (handle.reset(closed) !== 0) {
    handle.readStop();
    if (closed !== undefined) process.nextTick(closed);
  }
}

/** Bytes of a socket's writes that the kernel has not taken yet, exactly; 0 where Node does not tell. */
export function queuedBytes(socket: RelaySocket): number {
  if (socket.queuedBytes !== undefined) return socket.queuedBytes;
  const handle = handleOf(socket) as { readonly writeQueueSize?: number } | null | undefined;
  return handle?.writeQueueSize ?? 0;
}

function setOptions(handle: TcpHandle, keepAliveSeconds: number): void {
  handle.setNoDelay(true);
  handle.setKeepAlive(true, keepAliveSeconds);
}
