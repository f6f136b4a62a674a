import { once } from 'node:events';
import { createSocket, type BindOptions, type Socket, type SocketOptions } from 'node:dgram';
import type { Family } from '../../../util/family.ts';
import { takeInherited } from '../../core/inherited.ts';

/** Datagrams that wait in the process for one socket, at most, however small they are. */
export const MAX_QUEUED_DATAGRAMS = 64;

export const WILDCARD: Record<Family, string> = { 4: '0.0.0.0', 6: '::' };

/**
 * Every address is a literal. Without this, `dgram` calls its resolver for every datagram of an unconnected socket, and
 * `bind` and `connect` happen after they return.
 */
const literalLookup: NonNullable<SocketOptions['lookup']> = (host, _options, callback) => {
  callback(null, host, 0);
};

/**
 * A socket that is not bound yet and holds no descriptor. `dgram` binds one that only connects to the wildcard address,
 * where an IPv6 socket would take an IPv4 port, too.
 */
export function newSocket(family: Family, reusePort = false): Socket {
  return createSocket({
    type: family === 4 ? 'udp4' : 'udp6',
    ipv6Only: family === 6,
    reusePort,
    lookup: literalLookup,
  });
}

/** Binds a new socket; rejects with the system's error after closing it. */
export async function boundSocket(
  family: Family,
  address: string,
  port: number,
  reusePort = false,
): Promise<Socket> {
  const inherited = await inheritedSocket(family, address, port);
  if (inherited !== undefined) return inherited;
  return bind(newSocket(family, reusePort), { address, port, exclusive: true });
}

export async function inheritedSocket(
  family: Family,
  address: string,
  port: number,
): Promise<Socket | undefined> {
  const fd = takeInherited('UDP', address, port);
  return fd === undefined ? undefined : bind(newSocket(family), { fd });
}

async function bind(socket: Socket, where: BindOptions): Promise<Socket> {
  const listening = once(socket, 'listening');
  socket.bind(where);
  try {
    await listening;
    return socket;
  } catch (error) {
    socket.close();
    throw error;
  }
}

/**
 * Asks for larger kernel buffers. Linux and Windows grant what their maximum allows; some systems
 * refuse instead, and the socket then keeps its default: a smaller size is no error.
 */
export function setBufferSizes(socket: Socket, bytes: number): void {
  try {
    socket.setRecvBufferSize(bytes);
    socket.setSendBufferSize(bytes);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_SOCKET_BUFFER_SIZE') throw error;
  }
}

/**
 * Whether a datagram has to be dropped because the kernel takes no more. `dgram` would queue it
 * without limit. In the usual case nothing waits and this is one cheap call.
 */
export function sendQueueFull(socket: Socket, length: number, maxBytes: number): boolean {
  const waiting = socket.getSendQueueCount();
  if (waiting === 0) return false;
  return waiting >= MAX_QUEUED_DATAGRAMS || socket.getSendQueueSize() + length > maxBytes;
}

interface Handle {
  readonly fd: number;
  recvStop?(): number;
}

interface State {
  readonly handle?: Handle;
}

/** The handle of a bound socket, which Node does not document; undefined where it is not found. */
export function handleOf(socket: Socket): Handle | undefined {
  const key = Object.getOwnPropertySymbols(socket).find(
    ({ description }) => description === 'state symbol',
  );
  return key && (socket as unknown as Readonly<Record<symbol, State>>)[key]?.handle;
}
