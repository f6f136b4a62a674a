import type { Activity } from '../counters.ts';
import type { InheritedSocket } from '../core/inherited.ts';
import { withPatches } from '../core/endpoint-patch.ts';
import { bySlot } from '../core/listener-slot.ts';
import {
  isSharedSockets,
  sharedChange,
  sharedSocketsName,
  usesSharedSockets,
} from '../core/shared-service-ports.ts';
import type { ServicePortSnapshot } from '../engine.ts';
import type {
  EngineChange,
  ListenerStatus,
  ListenSpec,
  Protocol,
  ServicePortSpec,
} from '../spec.ts';
import { activityIn, countersIn, withoutThread, type ThreadRow } from './counter-memory.ts';
import type { ListeningSockets } from './listening-sockets.ts';
import type { Batch, ServicePortState } from './protocol.ts';
import type { PoolWorker } from './worker.ts';

interface ServicePortRecord {
  readonly name: string;
  readonly protocol: Protocol;
  /** Identifies its counters; never reused. */
  readonly slot: number;
  rows: readonly ThreadRow[];
  /** Undefined once it was removed: the record stays while its relays are open. */
  spec: ServicePortSpec | undefined;
  states: ReadonlyMap<string, ListenerStatus>;
}

const NO_ROWS: readonly ThreadRow[] = [];
const NO_LISTENERS: ReadonlyMap<string, ListenSpec> = new Map();
const NO_STATES: ReadonlyMap<string, ListenerStatus> = new Map();

/**
 * The desired state of a pool, with what its workers have reported and counted. Shared sockets are service ports
 * without endpoints here, which snapshots leave out; their states are those of the listeners that use them.
 */
export class ServicePorts {
  readonly #workers: number;
  readonly #sockets: ListeningSockets;
  /** Whether the kernel sends all clients of one address to the same worker. Set before the first batch. */
  isSteered = false;
  readonly #records = new Map<string, ServicePortRecord>();
  readonly #bySlot = new Map<number, ServicePortRecord>();
  /** How many listeners need the shared sockets at an address. */
  readonly #sharedUsers = new Map<string, number>();
  readonly #removed = new Set<string>();
  #slots = 0;

  constructor(workers: number, sockets: ListeningSockets) {
    this.#workers = workers;
    this.#sockets = sockets;
  }

  /**
   * Applies a batch to the desired state. Returns it with counter slots and the shared sockets to open or close, and
   * whether a service port leaves an address, which the other workers have to do before the first one.
   */
  note(changes: readonly EngineChange[]): { changes: readonly EngineChange[]; leaves: boolean } {
    const noted = withPatches(changes, (name) => this.#spec(name));
    const isLeft = this.#noteAll(changes);
    const ofShared = this.#sharedChanges();
    const leaves = this.#noteAll(ofShared) || isLeft;
    return { changes: [...ofShared, ...noted].map((change) => this.#withSlot(change)), leaves };
  }

  settled(changes: readonly EngineChange[]): void {
    for (const change of changes) {
      if (change.kind !== 'remove') continue;
      if (this.#records.get(change.name)?.spec === undefined) this.#removed.add(change.name);
    }
    this.#tidy();
  }

  batch(worker: PoolWorker, changes: readonly EngineChange[]): Batch {
    const sockets: InheritedSocket[] = [];
    const ports = new Map<string, number>();
    const set = (name: string): Batch['changes'][number] => {
      const record = this.#records.get(name);
      const spec = record?.spec;
      if (record === undefined || spec === undefined) return { kind: 'remove', name };
      const { slot } = record;
      if (usesSharedSockets(spec)) return sharedChange(spec, slot);
      if (worker.index > 0 && !this.#isForAll(spec)) return { kind: 'remove', name };
      for (const key of ownListeners(spec).keys()) {
        const given = this.#sockets.give(key, worker);
        sockets.push(...given);
        const [first] = given;
        if (first !== undefined) ports.set(key, first.port);
      }
      return { kind: 'set', spec: this.#specFor(worker.index, spec), slot };
    };
    const wanted: Batch['changes'][number][] = [];
    const names = new Set<string>();
    for (const change of changes) {
      if (change.kind === 'remove') wanted.push(change);
      else if (change.kind === 'set') names.add(change.spec.name);
      else if (worker.index === 0 || this.#isForAll(this.#spec(change.name))) wanted.push(change);
    }
    for (const name of names) wanted.push(set(name));
    return { changes: wanted, sockets, ports };
  }

  /** The desired state of some service ports, or of all, with where they count. */
  sets(names: Iterable<string> = this.#records.keys()): EngineChange[] {
    return [...names].flatMap((name): EngineChange[] => {
      const { spec, slot } = this.#records.get(name) ?? {};
      return spec === undefined ? [] : [{ kind: 'set', spec, slot }];
    });
  }

  keys(): ReadonlySet<string> {
    const all = [...this.#records.values()];
    return new Set(all.flatMap(({ spec }) => Array.from(ownListeners(spec).keys())));
  }

  /** Applies the first worker's reports; returns whether other workers have to listen at a further address now. */
  report({ name, listeners }: ServicePortState): boolean {
    const record = this.#records.get(name);
    if (record?.spec === undefined || usesSharedSockets(record.spec)) return false;
    const { states } = record;
    record.states = new Map(listeners.map((status) => [status.listen.group?.slot ?? '', status]));
    return [...record.states].some(
      ([key, { state }]) => state === 'listening' && states.get(key)?.state !== state,
    );
  }

  counts(thread: object, slot: number, memory: SharedArrayBuffer): void {
    const record = this.#bySlot.get(slot);
    if (record === undefined) return;
    // The service port may have been removed and set again while another thread had relays of it.
    const others = withoutThread(record.rows, thread);
    record.rows = [...others, { thread, row: new Float64Array(memory) }];
  }

  countsNoMore(thread: object): void {
    for (const record of this.#records.values()) record.rows = withoutThread(record.rows, thread);
  }

  snapshot(names: Iterable<string> = this.names()): ServicePortSnapshot[] {
    const records = [...names].flatMap((name) => this.#records.get(name) ?? []);
    return records.flatMap((record) => this.#snapshotOf(record));
  }

  names(): string[] {
    this.#tidy();
    return [...this.#records.keys()].filter((name) => !isSharedSockets(name));
  }

  activity(): Activity {
    this.#tidy();
    const total = { servicePorts: 0, counted: 0, active: 0 };
    for (const record of this.#records.values()) {
      if (isSharedSockets(record.name)) continue;
      const { counted, active } = activityIn(record.rows);
      total.servicePorts += 1;
      total.counted += counted;
      total.active += active;
    }
    return total;
  }

  clear(): void {
    this.#records.clear();
    this.#bySlot.clear();
    this.#sharedUsers.clear();
  }

  /** Drops removed service ports once their last relay has ended. */
  #tidy(): void {
    for (const name of this.#removed) {
      const record = this.#records.get(name);
      if (record?.spec === undefined && record !== undefined) {
        if (activityIn(record.rows).active > 0) continue;
        this.#bySlot.delete(record.slot);
        this.#records.delete(name);
      }
      this.#removed.delete(name);
    }
  }

  #spec(name: string): ServicePortSpec | undefined {
    return this.#records.get(name)?.spec;
  }

  #withSlot(change: EngineChange): EngineChange {
    if (change.kind !== 'set') return change;
    return { ...change, slot: this.#records.get(change.spec.name)?.slot };
  }

  #noteAll(changes: readonly EngineChange[]): boolean {
    let leaves = false;
    for (const change of changes) {
      if (change.kind === 'remove') leaves = this.#remove(change.name) || leaves;
    }
    for (const change of changes) {
      if (change.kind === 'set') leaves = this.#set(change.spec) || leaves;
      else if (change.kind === 'endpoints') {
        const record = this.#records.get(change.name);
        if (record?.spec === undefined) continue;
        record.spec = { ...record.spec, endpoints: change.endpoints };
      }
    }
    return leaves;
  }

  #remove(name: string): boolean {
    const record = this.#records.get(name);
    if (record === undefined) return false;
    const { spec } = record;
    this.#countShared(spec, -1);
    record.spec = undefined;
    record.states = NO_STATES;
    return ownListeners(spec).size > 0;
  }

  #set(spec: ServicePortSpec): boolean {
    const { name, protocol } = spec;
    const listeners = ownListeners(spec);
    const previous = this.#records.get(name);
    const before = previous?.spec;
    this.#countShared(before, -1);
    this.#countShared(spec, 1);
    for (const [key, listen] of listeners) {
      this.#sockets.inherit(key, protocol, listen);
      if (!this.#isForAll(spec)) this.#sockets.keepFirst(key);
    }
    const record = this.#recordFor(spec, previous);
    record.spec = spec;
    if (record.states.size > 0)
      record.states = new Map([...record.states].filter(([key]) => listeners.has(key)));
    return [...ownListeners(before).keys()].some((key) => !listeners.has(key));
  }

  #countShared(spec: ServicePortSpec | undefined, by: 1 | -1): void {
    if (spec === undefined || !usesSharedSockets(spec)) return;
    for (const { address } of spec.listen)
      this.#sharedUsers.set(address, (this.#sharedUsers.get(address) ?? 0) + by);
  }

  #sharedChanges(): EngineChange[] {
    return [...this.#sharedUsers].flatMap(([address, users]): EngineChange[] => {
      const name = sharedSocketsName(address);
      if (users > 0 === (this.#spec(name) !== undefined)) return [];
      if (users === 0) return [{ kind: 'remove', name }];
      const listen = [{ address, port: 0, traffic: 'internal', transparent: [] }] as const;
      const spec = { name, protocol: 'TCP', listen, endpoints: [] } as const;
      return [{ kind: 'set', spec: { ...spec, affinity: { kind: 'none' } } }];
    });
  }

  /** The same record while its counters continue. */
  #recordFor(
    { name, protocol }: ServicePortSpec,
    before: ServicePortRecord | undefined,
  ): ServicePortRecord {
    if (before !== undefined) {
      const isUsed = before.spec !== undefined || activityIn(before.rows).active > 0;
      if (isUsed && before.protocol === protocol) return before;
      this.#bySlot.delete(before.slot);
    }
    const slot = this.#slots;
    this.#slots += 1;
    const record = { name, protocol, slot, rows: NO_ROWS, spec: undefined, states: NO_STATES };
    this.#records.set(name, record);
    this.#bySlot.set(slot, record);
    return record;
  }

  /** Whether all workers serve it: with session affinity, each remembers only its own clients. */
  #isForAll(spec: ServicePortSpec | undefined): boolean {
    if (spec === undefined) return false;
    // The kernel does not know which service port a client of a shared socket is for.
    return spec.affinity.kind === 'none' || this.isSteered || usesSharedSockets(spec);
  }

  /** The first worker opens the sockets of all; the others listen where it does. */
  #specFor(index: number, spec: ServicePortSpec): ServicePortSpec {
    const wanted = this.#isForAll(spec) ? this.#workers : 1;
    const listen = [...ownListeners(spec)].flatMap(([slot, each]): ListenSpec[] => {
      const { port, count } = this.#sockets.at(slot) ?? { port: each.port, count: 0 };
      const sockets = Math.max(wanted, count);
      if (index === 0) return [{ ...each, group: { slot, sockets, missing: sockets - count } }];
      return count > index ? [{ ...each, port, group: { slot, sockets, missing: 0 } }] : [];
    });
    return { ...spec, listen };
  }

  #snapshotOf({ name, protocol, spec, states, rows }: ServicePortRecord): ServicePortSnapshot[] {
    const counters = countersIn(rows);
    if (spec === undefined) {
      if (counters.active === 0) return [];
      return [{ name, protocol, listeners: [], endpoints: 0, counters, draining: true }];
    }
    const listeners = usesSharedSockets(spec)
      ? spec.listen.flatMap((listen) => {
          const shared = this.#records.get(sharedSocketsName(listen.address));
          return statusOf(shared?.states.values().next().value, listen);
        })
      : Array.from(ownListeners(spec)).flatMap(([key, listen]) =>
          statusOf(states.get(key), listen),
        );
    return [{ name, protocol, listeners, endpoints: spec.endpoints.length, counters }];
  }
}

function statusOf(status: ListenerStatus | undefined, listen: ListenSpec): ListenerStatus[] {
  return status === undefined ? [] : [{ ...status, listen }];
}

/** The listeners that it does not share, by the key of their slot. */
function ownListeners(spec: ServicePortSpec | undefined): ReadonlyMap<string, ListenSpec> {
  const isOwn = spec !== undefined && !usesSharedSockets(spec);
  return isOwn ? bySlot(spec, spec.listen) : NO_LISTENERS;
}
