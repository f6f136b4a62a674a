import { setImmediate } from 'node:timers/promises';
import { KpngError } from '../../errors.ts';
import { Backoff, DEFAULT_BACKOFF, type BackoffPolicy } from '../../util/backoff.ts';
import type { Clock } from '../../util/clock.ts';
import { formatHostPort } from '../../util/host-port.ts';
import type { ProcessDescriptors } from './descriptors.ts';
import { listenerClosed, listenerFailed, listenerOpened } from '../events.ts';
import { inheritedPort, withInheritedSockets } from './inherited.ts';
import { kernelPortRange, listenOnAnyPort } from './kernel-port.ts';
import {
  assertAddress,
  isShared,
  listenFailure,
  newSlot,
  slotKeys,
  type Claim,
  type Slot,
} from './listener-slot.ts';
import type { LoopGuard } from './loop-guard.ts';
import { RetrySchedule } from './timers.ts';
import type { Acceptor, ServicePort } from './service-port.ts';
import type { ListenSpec, Protocol } from '../spec.ts';

/** Sockets opened or closed in one turn of the event loop: some milliseconds of work. */
const BATCH_SIZE = 128;

const BACKOFF: BackoffPolicy = { ...DEFAULT_BACKOFF, factor: 2 };

interface ListenerTableOptions {
  readonly acceptors: Readonly<Record<Protocol, Acceptor>>;
  readonly descriptors: ProcessDescriptors;
  readonly loops: LoopGuard;
  readonly clock: Clock;
  readonly random: () => number;
  /** Runs a job when no other one uses the table. */
  readonly enqueue: (job: () => Promise<void>) => void;
}

/**
 * Service ports and the addresses that they listen on.
 *
 * `set` records the addresses that service ports need; `settle` opens and closes sockets. So the order of changes
 * in a batch does not matter: a listener that any service port still needs is handed over, and every unneeded one
 * is closed before any opens. Of several service ports that need one address the first one has it; the next one
 * gets the open socket after it.
 */
export class ListenerTable {
  readonly #options: ListenerTableOptions;
  readonly #slots = new Map<string, Slot>();
  readonly #dirty = new Set<Slot>();
  readonly #retries: RetrySchedule<Slot>;
  readonly #kernelPorts = kernelPortRange();
  #ended = false;

  constructor(options: ListenerTableOptions) {
    this.#options = options;
    const { clock, enqueue } = options;
    this.#retries = new RetrySchedule(clock, BATCH_SIZE, (due) => {
      enqueue(async () => this.#open(due.filter(({ state }) => state.kind === 'failed')));
    });
  }

  /** Replaces the claims of a service port. Duplicate addresses count once. */
  set(
    owner: ServicePort,
    before: readonly Claim[],
    listen: readonly ListenSpec[],
  ): readonly Claim[] {
    const previous = new Map(before.map((claim) => [claim.slot.key, claim]));
    const claims = new Map<string, Claim>();
    const keys = slotKeys(owner, listen);
    for (const [index, spec] of listen.entries()) {
      const key = keys[index] ?? '';
      if (claims.has(key)) continue;
      const kept = previous.get(key);
      previous.delete(key);
      if (kept !== undefined) kept.listen = spec;
      const claim = kept ?? this.#claim(key, owner, spec);
      claims.set(key, claim);
      this.#dirty.add(claim.slot);
    }
    this.release([...previous.values()]);
    return [...claims.values()];
  }

  release(claims: readonly Claim[]): void {
    for (const claim of claims) {
      const { slot } = claim;
      slot.claims.splice(slot.claims.indexOf(claim), 1);
      this.#dirty.add(slot);
    }
  }

  /** Opens and closes sockets to match the claims. Resolves when every new listener was tried once. */
  async settle(): Promise<void> {
    const toClose: Slot[] = [];
    const toOpen = new Set<Slot>();
    for (const slot of this.#dirty) {
      const [holder, ...others] = slot.claims;
      if (holder === undefined) {
        this.#slots.delete(slot.key);
        this.#retries.delete(slot);
        if (slot.state.kind === 'listening') toClose.push(slot);
        // No service port names it, so only this ends its failure.
        else if (slot.state.kind === 'failed' && isShared(slot.key))
          publishClosed(slot.state.holder.owner, slot.state.holder.listen);
      } else {
        if (slot.state.kind === 'listening') this.#handOver(slot, holder);
        else if (slot.state.kind === 'idle' || slot.state.holder !== holder) toOpen.add(slot);
        for (const other of others) publishConflict(other, holder);
      }
    }
    this.#dirty.clear();
    await this.#inBatches(toClose, async (slot) => this.#close(slot));
    for (const slot of this.#retriesFreedBy(toClose)) toOpen.add(slot);
    await this.#open([...toOpen]);
  }

  /**
   * Closes every listener; nothing opens any more. Idempotent. Shared sockets close in this turn: it is not known any
   * more whose their clients are.
   */
  async close(): Promise<void> {
    this.end();
    const open = [...this.#slots.values()].filter(({ state }) => state.kind === 'listening');
    open.sort((one, other) => Number(isShared(other.key)) - Number(isShared(one.key)));
    this.#slots.clear();
    await this.#inBatches(open, async (slot) => this.#close(slot));
  }

  /** Opens nothing more, not even the rest of the current batch. */
  end(): void {
    this.#ended = true;
    this.#retries.clear();
  }

  #claim(key: string, owner: ServicePort, listen: ListenSpec): Claim {
    let slot = this.#slots.get(key);
    if (slot === undefined) {
      slot = newSlot(key, owner.protocol, listen);
      this.#slots.set(key, slot);
    }
    const claim = { slot, owner, listen, conflictReported: false };
    slot.claims.push(claim);
    return claim;
  }

  #handOver(slot: Slot, holder: Claim): void {
    const { state } = slot;
    if (state.kind !== 'listening') return;
    const { owner, listen } = holder;
    const { listener, holder: before } = state;
    if (holder === before && listen === state.listen) return;
    listener.assign(owner, listen);
    this.#noteOwner(slot, owner);
    slot.state = { kind: 'listening', listener, holder, listen };
    if (owner.name === before.owner.name) return;
    publishClosed(before.owner, state.listen);
    publishOpened(owner, listen);
  }

  async #open(slots: readonly Slot[]): Promise<void> {
    await this.#inBatches(slots, async (slot) => this.#openOne(slot));
  }

  async #openOne(slot: Slot): Promise<void> {
    const [holder] = slot.claims;
    if (this.#ended || holder === undefined) return;
    const { owner, listen } = holder;
    const { acceptors, descriptors } = this.#options;
    try {
      assertAddress(listen);
      if (!isShared(slot.key) && !descriptors.acquireListener(slot.protocol))
        throw Object.assign(new Error('no descriptor'), { code: 'EMFILE' });
    } catch (error) {
      this.#fail(slot, holder, error);
      return;
    }
    try {
      const acceptor = acceptors[slot.protocol];
      const first =
        listen.port === 0
          ? await listenOnAnyPort(
              (port) => acceptor.listen({ ...listen, port }, owner),
              this.#kernelPorts,
              this.#options.random,
              inheritedPort(slot.key),
            )
          : await acceptor.listen(listen, owner);
      const listener = await withInheritedSockets(first, acceptor, owner, listen, descriptors);
      this.#retries.delete(slot);
      slot.state = { kind: 'listening', listener, holder, listen };
      this.#noteOwner(slot, owner);
      publishOpened(owner, listen);
    } catch (error) {
      this.#releaseDescriptor(slot);
      this.#fail(slot, holder, error);
    }
  }

  #fail(slot: Slot, holder: Claim, reason: unknown): void {
    const { owner, listen } = holder;
    const { clock, random } = this.#options;
    const failure = listenFailure(owner.name, slot.protocol, listen, reason);
    const backoff =
      slot.state.kind === 'failed' ? slot.state.backoff : new Backoff(BACKOFF, random);
    const retryInMs = backoff.next();
    const retryAt = clock.now() + retryInMs;
    slot.state = { kind: 'failed', holder, failure, backoff };
    if (!this.#ended) this.#retries.set(slot, retryAt);
    if (!listenerFailed.hasSubscribers) return;
    const { error } = failure;
    const listener = { servicePort: owner.name, protocol: slot.protocol, listen };
    listenerFailed.publish({ ...listener, code: error.code, error, retryInMs });
  }

  async #close(slot: Slot): Promise<void> {
    if (slot.state.kind !== 'listening') return;
    const { listener, holder, listen } = slot.state;
    this.#noteOwner(slot, undefined);
    slot.state = { kind: 'idle' };
    await listener.close();
    this.#releaseDescriptor(slot);
    publishClosed(holder.owner, listen);
  }

  /** Shared sockets are few and not counted. */
  #releaseDescriptor({ key, protocol }: Slot): void {
    if (!isShared(key)) this.#options.descriptors.releaseListener(protocol);
  }

  /** Records whose clients arrive here. Clients of a shared socket have connected to other addresses. */
  #noteOwner({ key, protocol, state }: Slot, owner: ServicePort | undefined): void {
    if (protocol !== 'TCP' || state.kind !== 'listening' || isShared(key)) return;
    const { address, boundPort } = state.listener;
    this.#options.loops.setListener(address, boundPort, owner);
  }

  /** Failed slots that shared their port with one that closed: a wildcard overlaps every address. */
  #retriesFreedBy(closed: readonly Slot[]): Slot[] {
    if (closed.length === 0 || this.#retries.size === 0) return [];
    const ports = new Set(closed.map(({ protocol, port }) => `${protocol} ${port}`));
    return this.#retries.items().filter(({ protocol, port }) => ports.has(`${protocol} ${port}`));
  }

  /** Yields to relays between batches. */
  async #inBatches(slots: readonly Slot[], work: (slot: Slot) => Promise<void>): Promise<void> {
    for (let start = 0; start < slots.length; start += BATCH_SIZE) {
      if (start > 0) await setImmediate();
      await Promise.all(slots.slice(start, start + BATCH_SIZE).map(async (slot) => work(slot)));
    }
  }
}

function publishOpened({ name, protocol }: ServicePort, listen: ListenSpec): void {
  if (listenerOpened.hasSubscribers)
    listenerOpened.publish({ servicePort: name, protocol, listen });
}

function publishClosed({ name, protocol }: ServicePort, listen: ListenSpec): void {
  if (listenerClosed.hasSubscribers)
    listenerClosed.publish({ servicePort: name, protocol, listen });
}

/** There is no next attempt: the address is handed over when its holder releases it. */
function publishConflict(claim: Claim, holder: Claim): void {
  if (claim.conflictReported) return;
  claim.conflictReported = true;
  if (!listenerFailed.hasSubscribers) return;
  const { owner, listen, slot } = claim;
  const address = formatHostPort({ host: listen.address, port: listen.port });
  const code = 'KPNG_PORTAL_CONFLICT';
  const error = new KpngError(
    code,
    `cannot listen on ${address}/${slot.protocol} for ${owner.name}: ${holder.owner.name} does`,
    { servicePort: owner.name },
  );
  const message = { servicePort: owner.name, protocol: slot.protocol, listen };
  listenerFailed.publish({ ...message, code, error, retryInMs: 0 });
}
