import { setImmediate } from 'node:timers/promises';
import type { SerialQueue } from '../../util/serial-queue.ts';
import type { Engine } from '../engine.ts';
import { listenerClosed, listenerFailed, listenerOpened } from '../events.ts';
import { hasInherited, inheritedPort } from './inherited.ts';
import { kernelPortRange, listenOnAnyPort } from './kernel-port.ts';
import {
  assertPossible,
  bySlot,
  claimStatus,
  isShared,
  listenFailure,
  type Claim,
  type Slot,
} from './listener-slot.ts';
import type { LoopGuard } from './loop-guard.ts';
import { DeadlineQueue } from './timers.ts';
import type { OwnedListener } from './listener.ts';
import type { EngineContext, ServicePort } from './service-port.ts';
import type { ListenerStatus, ListenSpec } from '../spec.ts';

/** Sockets opened or closed in one turn of the event loop: some milliseconds of work. */
const BATCH_SIZE = 128;

/** Times between two attempts to open a listener; the last one is repeated. Milliseconds. */
const RETRY_MS = [1000, 2000, 4000, 8000, 16_000, 30_000];

interface ListenerTableOptions extends EngineContext {
  readonly kind: Engine['kind'];
  readonly listen: (spec: ListenSpec, owner: ServicePort) => Promise<OwnedListener>;
  readonly loops: LoopGuard;
  readonly random: () => number;
  /** Of all that uses the table. */
  readonly queue: SerialQueue;
}

/**
 * Service ports and the addresses that they listen on. `set` records them, `settle` opens and closes sockets: one that
 * any service port still needs is handed over, and every unneeded one is closed before any opens. Of several service
 * ports with one address the first one has it, then the next one.
 */
export class ListenerTable {
  readonly #options: ListenerTableOptions;
  readonly #slots = new Map<string, Slot>();
  readonly #claims = new Map<ServicePort, readonly Claim[]>();
  readonly #dirty = new Set<Slot>();
  readonly #retries: readonly DeadlineQueue<Slot>[];
  readonly #failed = new Set<Slot>();
  /** Failed slots that are due for a retry, together. */
  #due: Slot[] = [];
  readonly #kernelPorts = kernelPortRange();
  #ended = false;

  constructor(options: ListenerTableOptions) {
    this.#options = options;
    this.#retries = RETRY_MS.map(
      (ms) => new DeadlineQueue<Slot>(options.clock, ms, (slot) => this.#retry(slot)),
    );
  }

  /** Replaces the addresses of a service port. Duplicate ones count once. */
  set(owner: ServicePort, listen: readonly ListenSpec[]): void {
    const before = this.#claims.get(owner) ?? [];
    const claims = Array.from(bySlot(owner, listen), ([key, spec]) => {
      const kept = before.find(({ slot }) => slot.key === key);
      const claim = kept ?? this.#claim(key, owner, spec);
      claim.listen = spec;
      this.#dirty.add(claim.slot);
      return claim;
    });
    for (const claim of before.filter((each) => !claims.includes(each))) {
      const { slot } = claim;
      slot.claims.splice(slot.claims.indexOf(claim), 1);
      this.#dirty.add(slot);
    }
    if (claims.length > 0) this.#claims.set(owner, claims);
    else this.#claims.delete(owner);
  }

  /** The listeners of a service port, without those that were not tried yet. */
  statusOf(owner: ServicePort): ListenerStatus[] {
    return (this.#claims.get(owner) ?? []).flatMap((claim) => claimStatus(claim) ?? []);
  }

  /** Opens and closes sockets to match the claims. Resolves when every new listener was tried once. */
  async settle(): Promise<void> {
    const toClose: Slot[] = [];
    const toOpen = new Set<Slot>();
    for (const slot of this.#dirty) {
      const [holder] = slot.claims;
      if (holder === undefined) {
        this.#slots.delete(slot.key);
        this.#endFailure(slot);
        if (slot.state.kind === 'listening') toClose.push(slot);
        // No service port names it, so only this ends its failure.
        else if (slot.state.kind === 'failed' && isShared(slot.key))
          publish(listenerClosed, slot.state.holder.owner, slot.state.holder.listen);
      } else if (slot.state.kind === 'listening') this.#handOver(slot, holder);
      else if (slot.state.kind === 'idle' || slot.state.holder !== holder) toOpen.add(slot);
    }
    this.#dirty.clear();
    await this.#inBatches(toClose, async (slot) => this.#close(slot));
    for (const slot of this.#retriesFreedBy(toClose)) toOpen.add(slot);
    await this.#inBatches([...toOpen], async (slot) => this.#open(slot));
  }

  /** Closes all, shared sockets in this turn: it is not known any more whose their clients are. Idempotent. */
  async close(): Promise<void> {
    this.end();
    const open = [...this.#slots.values()].filter(({ state }) => state.kind === 'listening');
    open.sort((one, other) => Number(isShared(other.key)) - Number(isShared(one.key)));
    this.#slots.clear();
    this.#claims.clear();
    await this.#inBatches(open, async (slot) => this.#close(slot));
  }

  /** Opens nothing more, not even the rest of the current batch. */
  end(): void {
    this.#ended = true;
    for (const slot of this.#failed) this.#endFailure(slot);
  }

  #claim(key: string, owner: ServicePort, listen: ListenSpec): Claim {
    let slot = this.#slots.get(key);
    if (slot === undefined) {
      const { address, port } = listen;
      const { protocol } = owner;
      slot = { key, protocol, address, port, claims: [], state: { kind: 'idle' } };
      this.#slots.set(key, slot);
    }
    const claim = { slot, owner, listen };
    slot.claims.push(claim);
    return claim;
  }

  #handOver(slot: Slot, holder: Claim): void {
    const { state } = slot;
    if (state.kind !== 'listening') return;
    const { owner, listen } = holder;
    const { listeners, holder: before } = state;
    if (holder === before && listen === state.listen) return;
    for (const each of listeners) each.assign(owner, listen);
    this.#noteOwner(slot, owner);
    slot.state = { ...state, holder, listen };
    if (owner.name === before.owner.name) return;
    publish(listenerClosed, before.owner, state.listen);
    publish(listenerOpened, owner, listen);
  }

  async #open(slot: Slot): Promise<void> {
    const [holder] = slot.claims;
    if (this.#ended || holder === undefined) return;
    const { owner, listen } = holder;
    const { protocol, key } = slot;
    const { descriptors, kind, random } = this.#options;
    const opened: OwnedListener[] = [];
    const open = async (port: number, group = listen.group): Promise<OwnedListener> => {
      const spec = { ...listen, port, ...(group && { group }) };
      const listener = await this.#options.listen(spec, owner);
      opened.push(listener);
      return listener;
    };
    let acquired = 0;
    const acquire = (): boolean => {
      const isFree = isShared(key) || descriptors.acquireListener(protocol);
      if (isFree) acquired += 1;
      return isFree;
    };
    try {
      assertPossible(kind, listen);
      if (!acquire()) throw Object.assign(new Error('no descriptor'), { code: 'EMFILE' });
      const { boundPort } =
        listen.port === 0
          ? await listenOnAnyPort(open, this.#kernelPorts, random, inheritedPort(key))
          : await open(listen.port);
      const group = listen.group && { ...listen.group, missing: 0 };
      // An old process with more workers had a socket for each. Clients in their queues would be reset.
      while (hasInherited(protocol, listen.address, boundPort) && acquire())
        await open(boundPort, group);
      this.#endFailure(slot);
      slot.state = { kind: 'listening', listeners: opened, boundPort, holder, listen };
      this.#noteOwner(slot, owner);
      publish(listenerOpened, owner, listen);
    } catch (error) {
      await Promise.all(opened.map((each) => each.close()));
      this.#releaseDescriptors(slot, acquired);
      this.#fail(slot, holder, error);
    }
  }

  #fail(slot: Slot, holder: Claim, reason: unknown): void {
    const { owner, listen } = holder;
    const { error, cause } = listenFailure(owner.name, slot.protocol, listen, reason);
    const { code } = error;
    const attempts = slot.state.kind === 'failed' ? slot.state.attempts + 1 : 0;
    const retries = (this.#retries[attempts] ?? this.#retries.at(-1)) as DeadlineQueue<Slot>;
    this.#endFailure(slot);
    const retry = retries.add(slot);
    slot.state = { kind: 'failed', holder, code, cause, attempts, retry };
    this.#failed.add(slot);
    if (this.#ended) this.#endFailure(slot);
    if (!listenerFailed.hasSubscribers) return;
    const listener = { servicePort: owner.name, protocol: slot.protocol, listen };
    listenerFailed.publish({ ...listener, code, error, retryInMs: retries.ms });
  }

  /** What is due at the same time is one job. */
  #retry(slot: Slot): void {
    if (this.#due.push(slot) > 1) return;
    // A listener that fails again is an outcome, so this does not reject.
    void this.#options.queue.run(async () => {
      const due = this.#due.splice(0).filter(({ state }) => state.kind === 'failed');
      await this.#inBatches(due, async (slot) => this.#open(slot));
    });
  }

  /** Plans no further attempt. */
  #endFailure(slot: Slot): void {
    this.#failed.delete(slot);
    if (slot.state.kind === 'failed') slot.state.retry.remove();
  }

  async #close(slot: Slot): Promise<void> {
    if (slot.state.kind !== 'listening') return;
    const { listeners, holder, listen } = slot.state;
    this.#noteOwner(slot, undefined);
    slot.state = { kind: 'idle' };
    await Promise.all(listeners.map((each) => each.close()));
    this.#releaseDescriptors(slot, listeners.length);
    publish(listenerClosed, holder.owner, listen);
  }

  /** Shared sockets are few and not counted. */
  #releaseDescriptors({ key, protocol }: Slot, count: number): void {
    if (isShared(key)) return;
    for (let left = count; left > 0; left -= 1) this.#options.descriptors.releaseListener(protocol);
  }

  /** Records whose clients arrive here. Clients of a shared socket have connected to other addresses. */
  #noteOwner({ key, protocol, address, state }: Slot, owner: ServicePort | undefined): void {
    if (protocol !== 'TCP' || state.kind !== 'listening' || isShared(key)) return;
    this.#options.loops.setListener(address, state.boundPort, owner);
  }

  /** Failed slots that shared their port with one that closed: a wildcard overlaps every address. */
  #retriesFreedBy(closed: readonly Slot[]): Slot[] {
    if (closed.length === 0) return [];
    const ports = new Set(closed.map(({ protocol, port }) => `${protocol} ${port}`));
    return [...this.#failed].filter(({ protocol, port }) => ports.has(`${protocol} ${port}`));
  }

  /** Yields to relays between batches. */
  async #inBatches(slots: readonly Slot[], work: (slot: Slot) => Promise<void>): Promise<void> {
    for (let start = 0; start < slots.length; start += BATCH_SIZE) {
      if (start > 0) await setImmediate();
      await Promise.all(slots.slice(start, start + BATCH_SIZE).map(async (slot) => work(slot)));
    }
  }
}

function publish(
  channel: typeof listenerOpened,
  { name, protocol }: ServicePort,
  listen: ListenSpec,
): void {
  if (channel.hasSubscribers) channel.publish({ servicePort: name, protocol, listen });
}
