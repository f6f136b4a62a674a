import { closeSync } from 'node:fs';
import { inodeOf } from '../../util/socket-file.ts';
import { takeInherited, type InheritedSocket } from '../../util/inherited.ts';
import type { Listener } from '../core/listener-table.ts';
import type { EngineLimits } from '../limits.ts';
import { openSockets } from '../linux/open-listener.ts';
import * as k from '../linux/sys/abi.ts';
import type { Sys } from '../linux/sys/sys.ts';
import type { ListenSpec } from '../spec.ts';
import type { ServicePortRecord } from './counter-memory.ts';
import type { PoolWorker } from './worker.ts';

interface PoolSocket {
  readonly fd: number;
  /** Identifies the socket, in case the descriptor was reused. */
  readonly inode: number | undefined;
  /** The worker that has it and closes it; undefined: none. */
  holder: PoolWorker | undefined;
}

interface Opener {
  readonly sys: Sys;
  readonly limits: EngineLimits;
  readonly workers: number;
  opened(record: ServicePortRecord): void;
}

/**
 * The listening sockets of a pool at one address, which outlive the workers that accept there. A replacement worker gets
 * the same descriptors, with all pending clients. Socket number i is that of worker i modulo the number of workers:
 * there are more if the previous process had more workers.
 */
export class PoolListener implements Listener<ServicePortRecord> {
  owner: ServicePortRecord;
  listen: ListenSpec;
  boundPort = 0;
  readonly count = 1;
  readonly #opener: Opener;
  /** In the order in which they were bound, which is the kernel's numbering. */
  #sockets: PoolSocket[] = [];

  constructor(opener: Opener, listen: ListenSpec, owner: ServicePortRecord) {
    this.#opener = opener;
    this.listen = listen;
    this.owner = owner;
  }

  async open(spec: ListenSpec): Promise<void> {
    const { sys, limits, workers } = this.#opener;
    const { protocol } = this.owner;
    const inherited: number[] = [];
    const take = () => takeInherited(protocol, spec.address, spec.port);
    for (let fd = take(); fd !== undefined; fd = take()) inherited.push(fd);
    const fds = openSockets(sys, protocol, spec, limits, inherited, workers);
    this.#sockets = fds.map((fd) => ({ fd, inode: inodeOf(fd), holder: undefined }));
    this.boundPort = sys.localAddress(fds[0] ?? -1)?.port ?? spec.port;
    this.#opener.opened(this.owner);
  }

  assign(owner: ServicePortRecord, listen: ListenSpec): void {
    this.owner = owner;
    this.listen = listen;
  }

  /** The others are closed by the workers that have them, or are about to be. */
  async close(): Promise<void> {
    for (const { fd, holder } of this.#sockets.splice(0)) if (holder === undefined) closeSync(fd);
  }

  /** The sockets that a worker needs here and does not have. It owns them from then on. */
  give(worker: PoolWorker): InheritedSocket[] {
    const mine = this.#sockets.filter(
      ({ holder }, index) => holder === undefined && index % this.#opener.workers === worker.index,
    );
    return mine.map((socket) => {
      socket.holder = worker;
      worker.gets(socket.fd);
      return this.#described(socket.fd);
    });
  }

  /** A worker has ended: its descriptors are free for the next one. Returns them. */
  lost(worker: PoolWorker): number[] {
    this.#sockets = this.#sockets.filter(
      (socket) => socket.holder !== worker || isSame(socket, socket.fd),
    );
    const its = this.#sockets.filter(({ holder }) => holder === worker);
    for (const socket of its) socket.holder = undefined;
    return its.map(({ fd }) => fd);
  }

  /** Hands all sockets to another engine; of those that a worker has, further descriptors. None is left then. */
  takeAll(): InheritedSocket[] {
    const { sys } = this.#opener;
    return this.#sockets.splice(0).flatMap((socket) => {
      const isFree = socket.holder === undefined;
      const fd = isFree ? socket.fd : sys.c.fcntl(socket.fd, k.F_DUPFD_CLOEXEC, 0);
      return isSame(socket, fd) ? [this.#described(fd)] : [];
    });
  }

  #described(fd: number): InheritedSocket {
    const { protocol } = this.owner;
    return { protocol, address: this.listen.address, port: this.boundPort, fd };
  }
}

function isSame({ inode }: PoolSocket, fd: number): boolean {
  return fd >= 0 && inode !== undefined && inodeOf(fd) === inode;
}
