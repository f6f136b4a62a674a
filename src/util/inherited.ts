import { closeSync } from 'node:fs';
import { inodeOf } from './socket-file.ts';

type Protocol = 'TCP' | 'UDP';

/** An open listening socket, from another process or thread. */
export interface InheritedSocket {
  readonly protocol: Protocol;
  /** IP literal as the kernel writes it. */
  readonly address: string;
  readonly port: number;
  readonly fd: number;
}

/** Sockets for listeners of this thread: from the old process, or in a worker from the main thread. */
const sockets = new Map<string, number[]>();
const ports = new Map<string, number>();
/** Inode numbers of the sockets of the old process, by descriptor. */
let received = new Map<number, number | undefined>();

function keyOf(...place: readonly [Protocol, address: string, port: number]): string {
  return place.join(' ');
}

/** Keeps sockets for listeners of this thread, which take them with every client in the queue. */
export function offerSockets(offered: readonly InheritedSocket[]): void {
  for (const { protocol, address, port, fd } of offered) {
    const key = keyOf(protocol, address, port);
    sockets.set(key, [...(sockets.get(key) ?? []), fd]);
  }
}

/** Keeps ports for listeners that let the kernel choose, by the key of their slot. */
export function offerPorts(chosen: Iterable<readonly [key: string, port: number]>): void {
  for (const [key, port] of chosen) ports.set(key, port);
}

export function keepInherited(
  inherited: readonly InheritedSocket[],
  listeners: readonly { readonly key: string; readonly port: number }[],
): void {
  received = new Map(inherited.map(({ fd }) => [fd, inodeOf(fd)]));
  offerSockets(inherited);
  offerPorts(listeners.map(({ key, port }) => [key, port]));
}

/** A descriptor for an address, owned by the caller; undefined if there is none. */
export function takeInherited(
  protocol: Protocol,
  address: string,
  port: number,
): number | undefined {
  const key = keyOf(protocol, address, port);
  const list = sockets.get(key);
  const fd = list?.shift();
  if (list?.length === 0) sockets.delete(key);
  return fd;
}

export function hasInherited(protocol: Protocol, address: string, port: number): boolean {
  return sockets.has(keyOf(protocol, address, port));
}

export function inheritedPort(key: string): number | undefined {
  return ports.get(key);
}

/**
 * Closes what no listener has taken. Returns the inode numbers of sockets of the old process that this one no longer
 * has open, which may have been taken before. Idempotent.
 */
export function closeInherited(): number[] {
  for (const fd of [...sockets.values()].flat()) closeSync(fd);
  sockets.clear();
  ports.clear();
  const gone = [...received].flatMap(([fd, inode]) => (inodeOf(fd) === inode ? [] : (inode ?? [])));
  received.clear();
  return gone;
}
