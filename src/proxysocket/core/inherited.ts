import { closeSync } from 'node:fs';
import { getEnvironmentData, setEnvironmentData } from 'node:worker_threads';
import { inodeOf } from '../../util/inode.ts';
import type { Protocol, Traffic } from '../spec.ts';

/** A socket that another process listened on, open in this one, too. */
export interface InheritedSocket {
  readonly protocol: Protocol;
  /** IP literal as the kernel writes it. */
  readonly address: string;
  readonly port: number;
  readonly fd: number;
}

/** Where a service port of another process listened. */
export interface FormerListener {
  /** `namespace/name:port`. */
  readonly servicePort: string;
  readonly protocol: Protocol;
  readonly address: string;
  readonly traffic: Traffic;
  /** What was asked for: 0 if any port would do. */
  readonly asked: number;
  readonly port: number;
  /** The key of its place in the listener table. */
  readonly key: string;
}

/** What all threads of the process know; plain data and shared memory. */
interface Estate {
  /** Where in `descriptors` the sockets of a place are; several workers have one each. */
  readonly places: ReadonlyMap<string, readonly number[]>;
  /** Ports of places that asked for any, by the key of the place. */
  readonly ports: ReadonlyMap<string, number>;
  /** -1 once somebody has taken a socket. */
  readonly descriptors: SharedArrayBuffer;
  /** How many workers have asked for their share of a place, by the index of its first socket. */
  readonly shares: SharedArrayBuffer;
  /** 1 once `closeInherited` has been called: threads that run then have a copy of the rest. */
  readonly over: SharedArrayBuffer;
  /** What they were when they came. */
  readonly given: readonly { readonly fd: number; readonly inode: number | undefined }[];
}

const NAME = 'kpng-userspace inherited sockets';

/**
 * Keeps sockets for listeners that are to open, in any thread: descriptors belong to the process. A listener
 * that wants such a place gets the socket with everything that waits in its queue, and need not bind. Threads
 * that run already do not learn of it.
 */
export function keepInherited(
  sockets: readonly InheritedSocket[],
  former: readonly FormerListener[],
): void {
  const descriptors = new SharedArrayBuffer(sockets.length * 4);
  new Int32Array(descriptors).set(sockets.map(({ fd }) => fd));
  const places = Map.groupBy(sockets.keys(), (index) => placeOf(sockets[index]));
  const ports = new Map(
    former.filter(({ asked }) => asked === 0).map(({ key, port }) => [key, port]),
  );
  const shares = new SharedArrayBuffer(sockets.length * 4);
  const given = sockets.map(({ fd }) => ({ fd, inode: inodeOf(fd) }));
  const over = new SharedArrayBuffer(4);
  setEnvironmentData(NAME, { descriptors, places, ports, shares, over, given });
}

/**
 * How many of the sockets of a place are for the worker that asks, when so many workers listen there. Each asks once, and
 * together they have all.
 */
export function inheritedShare(
  protocol: Protocol,
  address: string,
  port: number,
  workers: number,
): number {
  const estate = getEstate();
  const indexes = estate?.places.get(placeOf({ protocol, address, port })) ?? [];
  const [first] = indexes;
  if (estate === undefined || first === undefined) return 0;
  const rank = Atomics.add(new Int32Array(estate.shares), first, 1);
  const spare = rank < indexes.length % workers ? 1 : 0;
  return Math.floor(indexes.length / workers) + spare;
}

/** How many sockets came for a place, taken or not; 0 once `closeInherited` has been called. */
export function inheritedCount(protocol: Protocol, address: string, port: number): number {
  return getEstate()?.places.get(placeOf({ protocol, address, port }))?.length ?? 0;
}

/** Whether there is a socket to take. */
export function hasInherited(protocol: Protocol, address: string, port: number): boolean {
  const estate = getEstate();
  if (estate === undefined) return false;
  const descriptors = new Int32Array(estate.descriptors);
  const indexes = estate.places.get(placeOf({ protocol, address, port })) ?? [];
  return indexes.some((index) => Atomics.load(descriptors, index) >= 0);
}

/** A descriptor of a place; then it is the caller's. Undefined when none is left, or ever was. */
export function takeInherited(
  protocol: Protocol,
  address: string,
  port: number,
): number | undefined {
  const estate = getEstate();
  if (estate === undefined) return undefined;
  const descriptors = new Int32Array(estate.descriptors);
  for (const index of estate.places.get(placeOf({ protocol, address, port })) ?? []) {
    const fd = Atomics.exchange(descriptors, index, -1);
    if (fd >= 0) return fd;
  }
  return undefined;
}

/** The port that the listener of a place which asks for any had in the former process. */
export function inheritedPort(key: string): number | undefined {
  return getEstate()?.ports.get(key);
}

/**
 * Closes what nobody has taken, and forgets the rest, in all threads. Returns the inode numbers of what this process does
 * not have open any more, which may have been taken before. Idempotent.
 */
export function closeInherited(): number[] {
  const estate = getEstate();
  if (estate === undefined) return [];
  setEnvironmentData(NAME, undefined);
  Atomics.store(new Int32Array(estate.over), 0, 1);
  const descriptors = new Int32Array(estate.descriptors);
  for (let index = 0; index < descriptors.length; index += 1) {
    const fd = Atomics.exchange(descriptors, index, -1);
    if (fd >= 0) closeSync(fd);
  }
  return estate.given.flatMap(({ fd, inode }) =>
    inode === undefined || inodeOf(fd) === inode ? [] : [inode],
  );
}

function getEstate(): Estate | undefined {
  const estate = getEnvironmentData(NAME) as unknown as Estate | undefined;
  if (estate === undefined || Atomics.load(new Int32Array(estate.over), 0) === 1) return undefined;
  return estate;
}

function placeOf(socket: Omit<InheritedSocket, 'fd'> | undefined): string {
  return socket === undefined ? '' : `${socket.protocol} ${socket.address} ${socket.port}`;
}
