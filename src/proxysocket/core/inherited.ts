import { closeSync } from 'node:fs';
import { inodeOf } from '../../util/inode.ts';
import type { Protocol, Traffic, ListenSpec } from '../spec.ts';
import type { Acceptor, Listener, ServicePort } from './service-port.ts';

/** A listening socket that is open already, by another process or thread. */
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

/*
 * What listeners of this thread may take instead of opening a socket: the main thread has it from another process, a worker
 * from the main thread.
 */
const sockets = new Map<string, number[]>();
const ports = new Map<string, number>();
/** What came from another process. */
let given: { readonly fd: number; readonly inode: number | undefined }[] = [];

/**
 * Keeps sockets for listeners of this thread that are to open. A listener at such an address gets the socket with every
 * client that waits in its queue, and need not bind. `chosen`: ports for listeners that ask for any, by the key of
 * their slot.
 */
export function offerSockets(
  offered: readonly InheritedSocket[],
  chosen: Iterable<readonly [key: string, port: number]>,
): void {
  for (const socket of offered) {
    const place = placeOf(socket);
    const list = sockets.get(place);
    if (list === undefined) sockets.set(place, [socket.fd]);
    else list.push(socket.fd);
  }
  for (const [key, port] of chosen) ports.set(key, port);
}

/** Keeps what a process that runs has handed over, until `closeInherited`. */
export function keepInherited(
  inherited: readonly InheritedSocket[],
  former: readonly FormerListener[],
): void {
  given = inherited.map(({ fd }) => ({ fd, inode: inodeOf(fd) }));
  const chosen = former.filter(({ asked }) => asked === 0);
  offerSockets(
    inherited,
    chosen.map(({ key, port }) => [key, port]),
  );
}

/** Whether there is a socket to take. */
export function hasInherited(protocol: Protocol, address: string, port: number): boolean {
  return sockets.has(placeOf({ protocol, address, port }));
}

/** A descriptor for an address; then it is the caller's. Undefined when none is left, or ever was. */
export function takeInherited(
  protocol: Protocol,
  address: string,
  port: number,
): number | undefined {
  const place = placeOf({ protocol, address, port });
  const list = sockets.get(place);
  const fd = list?.shift();
  if (list?.length === 0) sockets.delete(place);
  return fd;
}

/** The port that a listener which asks for any had before. */
export function inheritedPort(key: string): number | undefined {
  return ports.get(key);
}

/**
 * Closes what no listener has taken. Returns the inode numbers of sockets of the other process that this one does not have
 * open any more, which may have been taken before. Idempotent.
 */
export function closeInherited(): number[] {
  for (const fd of [...sockets.values()].flat()) closeSync(fd);
  sockets.clear();
  ports.clear();
  const gone = given.flatMap(({ fd, inode }) =>
    inode === undefined || inodeOf(fd) === inode ? [] : [inode],
  );
  given = [];
  return gone;
}

function placeOf({ protocol, address, port }: Omit<InheritedSocket, 'fd'>): string {
  return `${protocol} ${address} ${port}`;
}

export interface SurplusOptions {
  readonly acceptor: Acceptor;
  readonly owner: ServicePort;
  readonly listen: ListenSpec;
  /** Takes the descriptors of one more listener; false: there are none. */
  readonly hold: () => boolean;
  /** Gives them back. */
  readonly drop: () => void;
}

/**
 * Adds further sockets at the same address that are open already: the old process may have had more workers, each with a
 * socket of its own. So no client is reset that waits in the queue of one, or that the kernel sends there. The
 * same listener when there is nothing to add.
 */
export async function withSurplus(first: Listener, options: SurplusOptions): Promise<Listener> {
  const { acceptor, owner, hold, drop } = options;
  const { protocol, address, boundPort: port } = first;
  const { group, ...rest } = options.listen;
  const listen = { ...rest, port, ...(group !== undefined && { group: { ...group, missing: 0 } }) };
  const listeners = [first];
  while (hasInherited(protocol, address, port) && hold()) {
    try {
      listeners.push(await acceptor.listen(listen, owner));
    } catch (error) {
      drop();
      await Promise.all(listeners.map((each) => each.close()));
      for (let extra = listeners.length - 1; extra > 0; extra -= 1) drop();
      throw error;
    }
  }
  return listeners.length === 1 ? first : new SeveralListeners(listeners, drop);
}

/** Several sockets at one place. */
class SeveralListeners implements Listener {
  readonly protocol;
  readonly address;
  readonly boundPort;
  readonly family;
  readonly #listeners: readonly Listener[];
  readonly #drop: () => void;
  #closed: Promise<void> | undefined;

  constructor(listeners: readonly Listener[], drop: () => void) {
    const [first] = listeners;
    if (first === undefined) throw new Error('no listener');
    this.protocol = first.protocol;
    this.address = first.address;
    this.boundPort = first.boundPort;
    this.family = first.family;
    this.#listeners = listeners;
    this.#drop = drop;
  }

  assign(...ownership: Parameters<Listener['assign']>): void {
    for (const each of this.#listeners) each.assign(...ownership);
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    await Promise.all(this.#listeners.map((each) => each.close()));
    // The table counts one.
    for (let extra = this.#listeners.length - 1; extra > 0; extra -= 1) this.#drop();
  }
}
