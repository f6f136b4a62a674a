import { closeSync } from 'node:fs';
import { inodeOf } from '../../util/inode.ts';
import { takeInherited, type InheritedSocket } from '../core/inherited.ts';
import type { OpenedSockets } from '../linux/loop.ts';
import type { Protocol } from '../spec.ts';
import type { PoolWorker } from './worker.ts';

/** A listening socket of this process, for any thread. */
interface PoolSocket {
  readonly fd: number;
  /** Identifies the socket, in case the descriptor was reused. */
  readonly inode: number | undefined;
  /** The worker that has it and closes it; undefined: none. */
  holder: PoolWorker | undefined;
}

/** An address where service ports listen, with a socket for each worker. */
interface Slot {
  readonly protocol: Protocol;
  readonly address: string;
  /** The actual port; undefined until it is known. */
  port: number | undefined;
  /** The number of service ports that need it. */
  claims: number;
  /** In the order in which they were bound, which is the kernel's numbering. */
  sockets: PoolSocket[];
}

/**
 * The listening sockets of a pool. Descriptors belong to the process: each worker gets its own, and when it dies, its
 * replacement gets the same, with all pending clients.
 *
 * Socket number i of an address is that of worker i modulo the number of workers, so a worker takes several if the
 * previous process had more workers.
 */
export class ListeningSockets {
  readonly #workers: number;
  readonly #slots = new Map<string, Slot>();

  constructor(workers: number) {
    this.#workers = workers;
  }

  /**
   * Adds a service port's need for a listener. `port` is 0 when the kernel chooses, and then `previous` is its last
   * port.
   */
  claim(
    key: string,
    { protocol, address, port }: { protocol: Protocol; address: string; port: number },
    previous: number | undefined,
  ): void {
    const wanted = port === 0 ? previous : port;
    const slot: Slot = this.#slots.get(key) ?? {
      protocol,
      address,
      port: undefined,
      claims: 0,
      sockets: [],
    };
    this.#slots.set(key, slot);
    slot.claims += 1;
    if (slot.port !== undefined || wanted === undefined) return;
    slot.port = wanted;
    const take = () => takeInherited(protocol, address, wanted);
    for (let fd = take(); fd !== undefined; fd = take())
      slot.sockets.push(newSocket(fd, undefined));
  }

  /** Removes a service port's need for a listener; returns whether it was the last. */
  unclaim(key: string): boolean {
    const slot = this.#slots.get(key);
    if (slot === undefined) return false;
    slot.claims -= 1;
    return slot.claims === 0;
  }

  /** Drops addresses that no service port needs, once the workers have closed their sockets there, or are about to. */
  drop(keys: Iterable<string>): void {
    for (const key of keys) {
      for (const socket of this.#slots.get(key)?.sockets ?? []) closeUnused(socket);
      this.#slots.delete(key);
    }
  }

  /** All known listening ports, by key. */
  ports(): Map<string, number> {
    return new Map(
      [...this.#slots].flatMap(([key, { port }]) => (port === undefined ? [] : [[key, port]])),
    );
  }

  count(key: string): number {
    return this.#slots.get(key)?.sockets.length ?? 0;
  }

  /** Whether a worker has, or will have, a socket there. */
  has(key: string, index: number): boolean {
    return this.count(key) > index;
  }

  /** Records the sockets of the first worker. */
  opened(worker: PoolWorker, { slot: key, port, own, others }: OpenedSockets): void {
    for (const fd of others) worker.closeCopy(fd);
    const sockets = others.map((fd) => newSocket(fd, undefined));
    if (own !== undefined) sockets.unshift(newSocket(own, worker));
    const slot = this.#slots.get(key);
    if (slot === undefined) {
      // It is not needed any more; the worker is about to close its own.
      for (const socket of sockets) closeUnused(socket);
      return;
    }
    slot.port = port;
    slot.sockets.push(...sockets);
  }

  /** The sockets that a worker needs there and does not have. It owns them from then on. */
  give(key: string, worker: PoolWorker): InheritedSocket[] {
    const slot = this.#slots.get(key);
    if (slot?.port === undefined) return [];
    const { protocol, address, port } = slot;
    const mine = slot.sockets.filter((_, index) => index % this.#workers === worker.index);
    return mine.flatMap((socket) => {
      if (socket.holder === worker || !isOpen(socket)) return [];
      socket.holder = worker;
      return [{ protocol, address, port, fd: socket.fd }];
    });
  }

  /** Keeps only the first worker's sockets; the others close theirs. */
  keepFirst(key: string): void {
    const slot = this.#slots.get(key);
    if (slot === undefined) return;
    for (const socket of slot.sockets.slice(1)) if (socket.holder?.index !== 0) closeUnused(socket);
    slot.sockets = slot.sockets.filter((_, index) => index % this.#workers === 0);
  }

  /** A worker has ended: its descriptors are free for the next one. Returns them. */
  lost(worker: PoolWorker): ReadonlySet<number> {
    const fds = new Set<number>();
    for (const slot of this.#slots.values()) {
      for (const socket of slot.sockets) {
        if (socket.holder !== worker) continue;
        socket.holder = undefined;
        if (isOpen(socket)) fds.add(socket.fd);
      }
      slot.sockets = slot.sockets.filter((socket) => socket.holder !== undefined || isOpen(socket));
    }
    return fds;
  }

  /** The descriptors that a worker has. */
  heldBy(worker: PoolWorker): number[] {
    return [...this.#slots.values()].flatMap(({ sockets }) =>
      sockets.flatMap(({ fd, holder }) => (holder === worker ? [fd] : [])),
    );
  }

  /**
   * Hands all sockets to another engine; `duplicates` are further descriptors of the workers' sockets. The table is
   * empty afterwards.
   */
  takeSockets(duplicates: ReadonlyMap<number, number>): InheritedSocket[] {
    return [...this.#slots.values()].flatMap((slot) => {
      const { protocol, address, port, sockets } = slot;
      slot.sockets = [];
      if (port === undefined) return [];
      return sockets.flatMap((socket) => {
        const fd = socket.holder === undefined ? socket.fd : (duplicates.get(socket.fd) ?? -1);
        const isUsable = fd >= 0 && inodeOf(fd) === socket.inode;
        return isUsable ? [{ protocol, address, port, fd }] : [];
      });
    });
  }

  /** Closes unused descriptors. */
  close(): void {
    this.drop([...this.#slots.keys()]);
  }
}

function newSocket(fd: number, holder: PoolWorker | undefined): PoolSocket {
  return { fd, inode: inodeOf(fd), holder };
}

function isOpen({ fd, inode }: PoolSocket): boolean {
  return inode !== undefined && inodeOf(fd) === inode;
}

function closeUnused(socket: PoolSocket): void {
  if (socket.holder === undefined && isOpen(socket)) closeSync(socket.fd);
}
