import { isIP } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { KpngError, type ErrorCode } from '../../errors.ts';
import { formatHostPort } from '../../util/host-port.ts';
import { listenCode } from '../../util/listen-failure.ts';
import type { SerialQueue } from '../../util/serial-queue.ts';
import type { Engine } from '../engine.ts';
import { listenerClosed, listenerFailed, listenerOpened } from '../events.ts';
import { isShared, slotKeys } from './addresses.ts';
import { inheritedPort } from '../../util/inherited.ts';
import { kernelPortRange, listenOnAnyPort } from './kernel-port.ts';
import type { LoopGuard } from './loop-guard.ts';
import type { EngineContext } from './service-port.ts';
import type { ListenerStatus, ListenSpec, Protocol } from '../spec.ts';

interface Owner {
  readonly name: string;
  readonly protocol: Protocol;
}

/** What listens at an address of a service port. */
export interface Listener<O extends Owner> {
  readonly owner: O;
  readonly listen: ListenSpec;
  readonly boundPort: number;
  /** How many sockets of this thread it has. */
  readonly count: number;
  /** Rejects with the system's error. */
  open(spec: ListenSpec): Promise<void>;
  /** Hands the listener to a service port; new clients are served by it at once. */
  assign(owner: O, listen: ListenSpec): void;
  /** A new process has `served` sockets, by inode numbers. */
  leave?(served: ReadonlySet<number>): void;
  /** Idempotent. */
  close(): Promise<void>;
}

/** Protocol, address and port: one socket can listen there. */
interface Slot<O extends Owner, L extends Listener<O>> {
  readonly key: string;
  readonly protocol: Protocol;
  /** The service port that needs it; undefined: none does, so it closes. */
  owner?: O | undefined;
  /** Traffic and source ranges may change; address and port stay. */
  listen: ListenSpec;
  /** Present while it is open. */
  listener?: L | undefined;
  /** Present after a failed attempt. */
  failure?: Failure<O> | undefined;
}

interface Failure<O> {
  readonly owner: O;
  readonly code: ErrorCode;
  /** The operating system's code. */
  readonly cause: string;
  readonly attempts: number;
  /** When to retry, on the clock. */
  readonly retryAt: number;
}

/** Sockets opened or closed in one turn of the event loop: some milliseconds of work. */
const BATCH_SIZE = 128;

/** Times between two attempts to open a listener; the last one is repeated. Milliseconds. */
const RETRY_MS = [1000, 2000, 4000, 8000, 16_000, 30_000];

interface ListenerTableOptions<O, L> extends Omit<EngineContext, 'limits'> {
  readonly kind: Engine['kind'];
  readonly newListener: (listen: ListenSpec, owner: O) => L;
  readonly loops?: LoopGuard;
  readonly random: () => number;
  /** Of all that uses the table. */
  readonly queue: SerialQueue;
}

/**
 * Service ports and the addresses that they listen on. `set` records them, `settle` opens and closes sockets: one that
 * any service port still needs is handed over, and every unneeded one is closed before any opens. An address is in the
 * list of one service port, except while it moves within a batch: the one that lists it last has it.
 */
export class ListenerTable<O extends Owner, L extends Listener<O>> {
  readonly #options: ListenerTableOptions<O, L>;
  readonly #slots = new Map<string, Slot<O, L>>();
  readonly #slotsOf = new Map<O, ReadonlySet<Slot<O, L>>>();
  readonly #dirty = new Set<Slot<O, L>>();
  readonly #failed = new Set<Slot<O, L>>();
  /** When to retry next, on the clock. */
  #retryAt = Infinity;
  readonly #kernelPorts = kernelPortRange();
  #ended = false;

  constructor(options: ListenerTableOptions<O, L>) {
    this.#options = options;
  }

  /** Replaces the addresses of a service port; returns whether it leaves one. Duplicate ones count once. */
  set(owner: O, listen: readonly ListenSpec[]): boolean {
    if (listen.length === 0 && !this.#slotsOf.has(owner)) return false;
    let leaves = false;
    const slots = new Set<Slot<O, L>>();
    const { protocol } = owner;
    for (const [index, key] of slotKeys(owner, listen).entries()) {
      const spec = listen[index] as ListenSpec;
      const slot: Slot<O, L> = this.#slots.get(key) ?? { key, protocol, listen: spec };
      if (slots.has(slot)) continue;
      this.#slots.set(key, slot);
      slots.add(Object.assign(slot, { owner, listen: spec }));
      this.#dirty.add(slot);
    }
    for (const slot of this.#slotsOf.get(owner) ?? []) {
      if (slots.has(slot) || slot.owner !== owner) continue;
      leaves = true;
      slot.owner = undefined;
      this.#dirty.add(slot);
    }
    if (slots.size > 0) this.#slotsOf.set(owner, slots);
    else this.#slotsOf.delete(owner);
    return leaves;
  }

  /** The open listeners that a service port needs, or all do, with the keys of their slots. */
  *open(owner?: O): Iterable<{ key: string; listen: ListenSpec; listener: L }> {
    const slots = owner === undefined ? this.#slots.values() : (this.#slotsOf.get(owner) ?? []);
    for (const { key, owner: user, listen, listener } of slots)
      if (user !== undefined && listener !== undefined) yield { key, listen, listener };
  }

  /** The listeners of a service port, without those that were not tried yet. */
  statusOf(owner: O): ListenerStatus[] {
    const slots = [...(this.#slotsOf.get(owner) ?? [])];
    return slots.flatMap(({ listen, listener, failure }): ListenerStatus[] => {
      if (failure !== undefined)
        return [{ state: 'failed', listen, code: failure.code, cause: failure.cause }];
      if (listener === undefined) return [];
      return [{ state: 'listening', listen, boundPort: listener.boundPort }];
    });
  }

  /** Opens and closes sockets to match. Resolves when every new listener was tried once. */
  async settle(): Promise<void> {
    const toClose: Slot<O, L>[] = [];
    const toOpen = new Set<Slot<O, L>>();
    for (const slot of this.#dirty) {
      const { owner, listener, failure } = slot;
      if (owner === undefined) {
        this.#slots.delete(slot.key);
        if (listener !== undefined) toClose.push(slot);
        // No service port names it, so only this ends its failure.
        else if (failure !== undefined && isShared(slot.key))
          publish(listenerClosed, failure.owner, slot.listen);
        this.#endFailure(slot);
      } else if (listener !== undefined) this.#handOver(slot, listener, owner);
      else if (failure?.owner !== owner) toOpen.add(slot);
    }
    this.#dirty.clear();
    await this.#inBatches(toClose, async (slot) => this.#close(slot));
    for (const slot of this.#retriesFreedBy(toClose)) toOpen.add(slot);
    await this.#inBatches([...toOpen], async (slot) => this.#open(slot));
  }

  /** Closes all, shared sockets in this turn: it is not known any more whose their clients are. Idempotent. */
  async close(): Promise<void> {
    this.end();
    const open = [...this.#slots.values()].filter(({ listener }) => listener !== undefined);
    open.sort((one, other) => Number(isShared(other.key)) - Number(isShared(one.key)));
    this.#slots.clear();
    this.#slotsOf.clear();
    await this.#inBatches(open, async (slot) => this.#close(slot));
  }

  /** A new process has `served` sockets, by inode numbers. */
  leave(served: ReadonlySet<number>): void {
    for (const { listener } of this.#slots.values()) listener?.leave?.(served);
  }

  /** Opens nothing more, not even the rest of the current batch. */
  end(): void {
    this.#ended = true;
    for (const slot of this.#failed) this.#endFailure(slot);
  }

  #handOver(slot: Slot<O, L>, listener: L, owner: O): void {
    const { listen: spec } = slot;
    const { owner: before, listen } = listener;
    if (owner === before && spec === listen) return;
    listener.assign(owner, spec);
    this.#noteOwner(slot, owner);
    if (owner.name === before.name) return;
    publish(listenerClosed, before, listen);
    publish(listenerOpened, owner, spec);
  }

  async #open(slot: Slot<O, L>): Promise<void> {
    const { owner, listen, key, protocol } = slot;
    if (this.#ended || owner === undefined) return;
    const { descriptors, kind, random } = this.#options;
    const listener = this.#options.newListener(listen, owner);
    const open = (port: number): Promise<void> => listener.open({ ...listen, port });
    const isFree = descriptors.acquireListener(protocol);
    try {
      assertPossible(kind, listen);
      if (!isFree) throw failure('EMFILE', 'no descriptor');
      if (listen.port === 0)
        await listenOnAnyPort(open, this.#kernelPorts, random, inheritedPort(key));
      else await open(listen.port);
    } catch (error) {
      await listener.close();
      if (isFree) descriptors.releaseListener(protocol);
      this.#fail(slot, owner, error);
      return;
    }
    // Those that were inherited are open, whatever the limit.
    descriptors.keepListeners(protocol, listener.count - 1);
    this.#endFailure(slot);
    slot.listener = listener;
    this.#noteOwner(slot, owner);
    publish(listenerOpened, owner, listen);
    // It was ended meanwhile.
    if (this.#ended) await this.#close(slot);
  }

  #fail(slot: Slot<O, L>, owner: O, reason: unknown): void {
    const { protocol, listen } = slot;
    const cause = (reason as NodeJS.ErrnoException).code ?? 'UNKNOWN';
    const code = listenCode(cause);
    const attempts = slot.failure === undefined ? 0 : slot.failure.attempts + 1;
    const retryInMs = RETRY_MS[Math.min(attempts, RETRY_MS.length - 1)] ?? 0;
    const retryAt = this.#options.clock.now() + retryInMs;
    slot.failure = { owner, code, cause, attempts, retryAt };
    this.#failed.add(slot);
    if (this.#ended) this.#endFailure(slot);
    else this.#retryFrom(retryAt);
    if (!listenerFailed.hasSubscribers) return;
    const { name: servicePort } = owner;
    const target = formatHostPort({ host: listen.address, port: listen.port });
    const message = `cannot listen on ${target}/${protocol} for ${servicePort}: ${cause}`;
    const error = new KpngError(code, message, { cause: reason, servicePort });
    listenerFailed.publish({ servicePort, protocol, listen, code, error, retryInMs });
  }

  /** What is due at the same time is one job. */
  #retryFrom(at: number): void {
    if (at >= this.#retryAt) return;
    const { clock, queue } = this.#options;
    this.#retryAt = at;
    clock.setTimer(Math.max(0, at - clock.now()), () => {
      // An earlier retry was planned meanwhile.
      if (this.#retryAt !== at) return;
      this.#retryAt = Infinity;
      // A listener that fails again is an outcome, so this does not reject.
      void queue.run(async () => {
        const now = clock.now();
        const due = [...this.#failed].filter(({ failure }) => Number(failure?.retryAt) <= now);
        await this.#inBatches(due, async (slot) => this.#open(slot));
        for (const { failure } of this.#failed) this.#retryFrom(failure?.retryAt ?? now);
      });
    });
  }

  /** Plans no further attempt. */
  #endFailure(slot: Slot<O, L>): void {
    this.#failed.delete(slot);
    slot.failure = undefined;
  }

  async #close(slot: Slot<O, L>): Promise<void> {
    const { listener, protocol } = slot;
    if (listener === undefined) return;
    const { owner, listen, count } = listener;
    this.#noteOwner(slot, undefined);
    slot.listener = undefined;
    await listener.close();
    this.#options.descriptors.releaseListener(protocol, count);
    publish(listenerClosed, owner, listen);
  }

  /** Records whose clients arrive here. Clients of a shared socket have connected to other addresses. */
  #noteOwner({ key, protocol, listen, listener }: Slot<O, L>, owner: O | undefined): void {
    if (protocol !== 'TCP' || listener === undefined || isShared(key)) return;
    this.#options.loops?.setListener(listen.address, listener.boundPort, owner?.name);
  }

  /** Failed slots that shared their port with one that closed: a wildcard overlaps every address. */
  #retriesFreedBy(closed: readonly Slot<O, L>[]): Slot<O, L>[] {
    if (closed.length === 0) return [];
    const portOf = ({ protocol, listen }: Slot<O, L>) => `${protocol} ${listen.port}`;
    const ports = new Set(closed.map(portOf));
    return [...this.#failed].filter((slot) => ports.has(portOf(slot)));
  }

  /** Yields to relays between batches. */
  async #inBatches(
    slots: readonly Slot<O, L>[],
    work: (slot: Slot<O, L>) => Promise<void>,
  ): Promise<void> {
    for (let start = 0; start < slots.length; start += BATCH_SIZE) {
      if (start > 0) await setImmediate();
      await Promise.all(slots.slice(start, start + BATCH_SIZE).map(async (slot) => work(slot)));
    }
  }
}

/** Rejects host names, which the socket API would resolve, and what Node has no way to do. */
function assertPossible(kind: Engine['kind'], { address, transparent }: ListenSpec): void {
  if (isIP(address) === 0)
    throw failure('EINVAL', `${JSON.stringify(address)} is not an IP address`);
  if (kind === 'node' && transparent !== undefined)
    throw failure('EOPNOTSUPP', 'transparent sockets need --engine linux');
}

function failure(code: string, message: string): Error {
  return Object.assign(new Error(message), { code });
}

function publish(
  channel: typeof listenerOpened,
  { name: servicePort, protocol }: Owner,
  listen: ListenSpec,
): void {
  if (channel.hasSubscribers) channel.publish({ servicePort, protocol, listen });
}
