import { closeSync } from 'node:fs';
import { inodeOf } from '../../util/socket-file.ts';
import { inheritedPort, takeInherited, type InheritedSocket } from '../core/inherited.ts';
import type { OpenedSockets } from '../linux/loop.ts';
import type { ListenSpec, Protocol } from '../spec.ts';
import type { PoolWorker } from './worker.ts';

interface PoolSocket {
  readonly fd: number;
  /** Identifies the socket, in case the descriptor was reused. */
  readonly inode: number | undefined;
  /** The worker that has it and closes it; undefined: none. */
  holder: PoolWorker | undefined;
}

/** An address with a socket for each worker. */
interface Slot extends Omit<InheritedSocket, 'fd'> {
  /** In the order in which they were bound, which is the kernel's numbering. */
  sockets: PoolSocket[];
}

/**
 * The listening sockets of a pool, by the key of their slot in the first worker's listener table, which opens and
 * closes them. A replacement worker gets the same descriptors, with all pending clients. Socket number i of an address
 * is that of worker i modulo the number of workers: there are more if the previous process had more workers.
 */
export class ListeningSockets {
  readonly #workers: number;
  readonly #slots = new Map<string, Slot>();

  constructor(workers: number) {
    this.#workers = workers;
  }

  inherit(key: string, protocol: Protocol, listen: Pick<ListenSpec, 'address' | 'port'>): void {
    const { address } = listen;
    const port = listen.port === 0 ? inheritedPort(key) : listen.port;
    if (port === undefined || this.#slots.has(key)) return;
    const sockets: PoolSocket[] = [];
    const take = () => takeInherited(protocol, address, port);
    for (let fd = take(); fd !== undefined; fd = take()) sockets.push(newSocket(fd, undefined));
    if (sockets.length > 0) this.#slots.set(key, { protocol, address, port, sockets });
  }

  opened(worker: PoolWorker, { slot: key, own, others, ...place }: OpenedSockets): void {
    for (const fd of others) worker.closeCopy(fd);
    const sockets = others.map((fd) => newSocket(fd, undefined));
    if (own !== undefined) sockets.unshift(newSocket(own, worker));
    const before = this.#slots.get(key)?.sockets ?? [];
    this.#slots.set(key, { ...place, sockets: [...before, ...sockets] });
  }

  /** The first worker no longer listens there, and the others have closed their sockets or are about to. */
  closed(key: string): void {
    closeFree(this.#slots.get(key)?.sockets ?? []);
    this.#slots.delete(key);
  }

  /** Closes what is at no address of a list. */
  retain(keys: ReadonlySet<string>): void {
    for (const key of this.#slots.keys()) if (!keys.has(key)) this.closed(key);
  }

  ports(): Map<string, number> {
    return new Map([...this.#slots].map(([key, { port }]) => [key, port]));
  }

  at(key: string): { readonly port: number; readonly count: number } | undefined {
    const slot = this.#slots.get(key);
    return slot && { port: slot.port, count: slot.sockets.length };
  }

  /** The sockets that a worker needs there and does not have. It owns them from then on. */
  give(key: string, worker: PoolWorker): InheritedSocket[] {
    const slot = this.#slots.get(key);
    if (slot === undefined) return [];
    const { protocol, address, port } = slot;
    const mine = slot.sockets.filter(
      ({ holder }, index) => holder === undefined && index % this.#workers === worker.index,
    );
    return mine.map((socket) => {
      socket.holder = worker;
      return { protocol, address, port, fd: socket.fd };
    });
  }

  /** Keeps only the first worker's sockets; the others close theirs. */
  keepFirst(key: string): void {
    const slot = this.#slots.get(key);
    if (slot === undefined) return;
    const kept = slot.sockets.filter((_, index) => index % this.#workers === 0);
    closeFree(slot.sockets.filter((socket) => !kept.includes(socket)));
    slot.sockets = kept;
  }

  /** A worker has ended: its descriptors are free for the next one. Returns them. */
  lost(worker: PoolWorker): ReadonlySet<number> {
    const fds = new Set<number>();
    for (const slot of this.#slots.values()) {
      slot.sockets = slot.sockets.filter((socket) => {
        if (socket.holder !== worker) return true;
        socket.holder = undefined;
        if (!isSame(socket, socket.fd)) return false;
        fds.add(socket.fd);
        return true;
      });
    }
    return fds;
  }

  /** Hands all sockets to another engine; of those that a worker has, further descriptors. The table is empty then. */
  async takeAll(): Promise<InheritedSocket[]> {
    const found = [...this.#slots.values()].flatMap(({ protocol, address, port, sockets }) =>
      sockets.map(async (socket) => {
        const { holder } = socket;
        const copy = await holder?.run({ kind: 'duplicate', fd: socket.fd }).catch(() => undefined);
        const fd = holder === undefined ? socket.fd : (copy?.fd ?? -1);
        return isSame(socket, fd) ? [{ protocol, address, port, fd }] : [];
      }),
    );
    const all = await Promise.all(found);
    this.#slots.clear();
    return all.flat();
  }
}

function closeFree(sockets: readonly PoolSocket[]): void {
  for (const { fd, holder } of sockets) if (holder === undefined) closeSync(fd);
}

function newSocket(fd: number, holder: PoolWorker | undefined): PoolSocket {
  return { fd, inode: inodeOf(fd), holder };
}

function isSame({ inode }: PoolSocket, fd: number): boolean {
  return fd >= 0 && inode !== undefined && inodeOf(fd) === inode;
}
