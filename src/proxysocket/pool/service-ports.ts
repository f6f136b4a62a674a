import type { Activity } from '../counters.ts';
import { inheritedPort, type InheritedSocket } from '../core/inherited.ts';
import { withPatches } from '../core/endpoint-patch.ts';
import { slotKeys } from '../core/listener-slot.ts';
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
import type { CounterMemory } from './counter-memory.ts';
import type { ListeningSockets } from './listening-sockets.ts';
import type { Batch, ServicePortState } from './protocol.ts';
import { SharedSockets } from './shared-sockets.ts';
import type { PoolWorker } from './worker.ts';

interface ServicePortRecord {
  readonly name: string;
  readonly protocol: Protocol;
  /** Where it counts. */
  readonly slot: number;
  /** Undefined once it was removed: the record stays while its relays are open. */
  spec: ServicePortSpec | undefined;
  /** Its own listeners, in order. */
  keys: readonly string[];
  /** What the first worker has reported of them. */
  states: ReadonlyMap<string, ListenerStatus>;
  endpoints: number;
}

const NO_STATES: ReadonlyMap<string, ListenerStatus> = new Map();

/** The effect of a batch. */
export interface NotedChanges {
  /** The batch, and the shared sockets that it needs or no longer needs. */
  readonly changes: readonly EngineChange[];
  /** Addresses that no service port needs any more, by the keys of their slots. */
  readonly unwanted: ReadonlySet<string>;
  /** What the other workers have to close before the first one may; empty: nothing. */
  readonly releases: (index: number) => EngineChange[];
}

/**
 * The desired state of a pool, with what its workers have reported and counted: kept once, for all of them.
 *
 * Shared sockets are service ports without endpoints here. They are not in snapshots; their states are those of the
 * listeners of every service port that uses them.
 */
export class ServicePorts {
  readonly #workers: number;
  readonly #sockets: ListeningSockets;
  readonly #memory: CounterMemory;
  readonly #isSteered: () => boolean;
  readonly #records = new Map<string, ServicePortRecord>();
  readonly #shared = new SharedSockets();
  /** Those that were removed, as every worker knows. */
  readonly #removed = new Set<string>();
  /** Where service ports no longer count. Workers may still count there until they have the next batch. */
  readonly #leftSlots: number[] = [];
  /** Slots that are free once every worker has the current batch. */
  freed: readonly number[] = [];

  /** `isSteered`: whether the kernel sends all clients of one address to the same worker. */
  constructor(
    workers: number,
    sockets: ListeningSockets,
    memory: CounterMemory,
    isSteered: () => boolean,
  ) {
    this.#workers = workers;
    this.#sockets = sockets;
    this.#memory = memory;
    this.#isSteered = isSteered;
  }

  /** Applies a batch to the desired state. */
  note(changes: readonly EngineChange[]): NotedChanges {
    const noted = withPatches(changes, (name) => this.#spec(name));
    const previous = new Map<string, ServicePortRecord>();
    const left: string[] = [];
    const remember = (name: string): ServicePortRecord | undefined => {
      const record = this.#records.get(name);
      if (record?.spec !== undefined && !previous.has(name)) previous.set(name, { ...record });
      return record;
    };
    for (const change of changes) {
      if (change.kind !== 'remove') continue;
      const record = remember(change.name);
      if (record !== undefined) left.push(...this.#remove(record));
    }
    for (const change of changes) {
      if (change.kind === 'endpoints') {
        const record = this.#records.get(change.name);
        if (record?.spec === undefined) continue;
        record.spec = { ...record.spec, endpoints: change.endpoints };
        if (usesSharedSockets(record.spec)) record.endpoints = change.endpoints.length;
      } else if (change.kind === 'set') {
        remember(change.spec.name);
        left.push(...this.#set(change.spec));
      }
    }
    const ofShared = this.#shared.changes((name) => this.#spec(name) !== undefined);
    for (const change of ofShared) {
      if (change.kind === 'set') left.push(...this.#set(change.spec));
      const record = change.kind === 'remove' ? this.#records.get(change.name) : undefined;
      if (record !== undefined) left.push(...this.#remove(record));
    }
    this.freed = [...this.freed, ...this.#leftSlots.splice(0)];
    const unwanted = new Set(left.filter((key) => this.#sockets.unclaim(key)));
    return {
      changes: ofShared.length === 0 ? noted : [...ofShared, ...noted],
      unwanted,
      releases: (index) =>
        [...previous.values()].flatMap((record): EngineChange[] => {
          if (record.spec === undefined || !record.keys.some((key) => unwanted.has(key))) return [];
          return [{ kind: 'set', spec: this.#sharedSpec(record, record.spec, index, unwanted) }];
        }),
    };
  }

  /** Every worker has the batch. */
  settled(changes: readonly EngineChange[]): void {
    for (const change of changes) {
      if (change.kind !== 'remove') continue;
      if (this.#records.get(change.name)?.spec === undefined) this.#removed.add(change.name);
    }
    for (const slot of this.freed) this.#memory.free(slot);
    this.freed = [];
    this.#tidy();
  }

  /** Those changes of a batch that are still valid for a worker that started after they were recorded. */
  stillWanted(changes: readonly EngineChange[]): EngineChange[] {
    return changes.filter(
      (each) => each.kind === 'set' || each.kind === 'remove' || this.#spec(each.name),
    );
  }

  /** The data that a worker gets for a batch. `due`: further service ports to send. */
  batch(worker: PoolWorker, changes: readonly EngineChange[], due: Iterable<string> = []): Batch {
    const sockets: InheritedSocket[] = [];
    const ports = new Map<string, number>();
    const set = (name: string): Batch['changes'][number] => {
      const record = this.#records.get(name);
      const spec = record?.spec;
      if (record === undefined || spec === undefined) return { kind: 'remove', name };
      const { slot } = record;
      if (usesSharedSockets(spec)) return sharedChange(spec, slot);
      if (worker.index > 0 && !this.#isForAll(spec)) return { kind: 'remove', name };
      for (const key of record.keys) {
        const given = this.#sockets.give(key, worker);
        sockets.push(...given);
        const [first] = given;
        if (first !== undefined) ports.set(key, first.port);
      }
      return { kind: 'set', spec: this.#specFor(worker, record, spec), slot };
    };
    const wanted: Batch['changes'][number][] = [];
    const names = new Set(due);
    for (const change of changes) {
      const name = change.kind === 'set' ? change.spec.name : change.name;
      if (change.kind === 'remove') wanted.push(change);
      else if (change.kind === 'set') names.add(name);
      else if (worker.index === 0 || this.#isForAll(this.#spec(name))) wanted.push(change);
    }
    for (const name of names) wanted.push(set(name));
    return { changes: wanted, sockets, ports, ...this.#counting };
  }

  /** The changes alone, for service ports that the worker has. */
  release(changes: readonly EngineChange[]): Batch {
    return { changes: this.located(changes), sockets: [], ports: new Map(), ...this.#counting };
  }

  /** The whole desired state, for a worker that begins. */
  everything(worker: PoolWorker): Batch {
    const names = [...this.#records.values()].flatMap(({ name, spec }) => (spec ? [name] : []));
    return this.batch(worker, [], names);
  }

  /** The whole desired state, for an engine in the main thread. */
  specs(): ServicePortSpec[] {
    return [...this.#records.values()].flatMap(({ spec }) => spec ?? []);
  }

  /** A batch with where its service ports count. */
  located(changes: readonly EngineChange[]): EngineChange[] {
    return changes.map((change) =>
      change.kind === 'set'
        ? { ...change, slot: this.#records.get(change.spec.name)?.slot }
        : change,
    );
  }

  /** Applies the first worker's reports; returns whether other workers have to listen elsewhere now. */
  report({ name, listeners, endpoints }: ServicePortState): boolean {
    const record = this.#records.get(name);
    if (record?.spec === undefined || usesSharedSockets(record.spec)) return false;
    const before = openKeys(record.states);
    record.endpoints = endpoints;
    record.states = new Map(
      listeners.map((status) => [status.listen.group?.slot ?? '', status] as const),
    );
    return before !== openKeys(record.states);
  }

  snapshot(names: Iterable<string> = this.names()): ServicePortSnapshot[] {
    const records = [...names].flatMap((name) => this.#records.get(name) ?? []);
    return records.flatMap((record) => this.#snapshotOf(record) ?? []);
  }

  names(): string[] {
    this.#tidy();
    return [...this.#records.keys()].filter((name) => !isSharedSockets(name));
  }

  activity(): Activity {
    this.#tidy();
    const total = { servicePorts: 0, counted: 0, active: 0 };
    for (const { name, slot } of this.#records.values()) {
      if (isSharedSockets(name)) continue;
      const { counted, active } = this.#memory.activityOf(slot);
      total.servicePorts += 1;
      total.counted += counted;
      total.active += active;
    }
    return total;
  }

  clear(): void {
    this.#records.clear();
    this.#shared.clear();
  }

  /** Drops removed service ports once their last relay has ended. */
  #tidy(): void {
    for (const name of this.#removed) {
      const record = this.#records.get(name);
      if (record?.spec === undefined && record !== undefined) {
        if (this.#memory.activityOf(record.slot).active > 0) continue;
        this.#leftSlots.push(record.slot);
        this.#records.delete(name);
      }
      this.#removed.delete(name);
    }
  }

  get #counting(): Pick<Batch, 'counters' | 'freed'> {
    return { counters: this.#memory.blocks, freed: this.freed };
  }

  #spec(name: string): ServicePortSpec | undefined {
    return this.#records.get(name)?.spec;
  }

  /** Each returns the keys of slots that it releases. */
  #remove(record: ServicePortRecord): readonly string[] {
    const { keys } = record;
    this.#shared.count(record.spec, -1);
    record.spec = undefined;
    record.keys = NO_KEYS;
    record.states = NO_STATES;
    return keys;
  }

  #set(spec: ServicePortSpec): readonly string[] {
    const { name, protocol } = spec;
    const isShared = usesSharedSockets(spec);
    const all = isShared ? NO_KEYS : slotKeys(spec, spec.listen);
    const keys = isShared ? NO_KEYS : [...new Set(all)];
    let record = this.#records.get(name);
    const left = record?.keys ?? NO_KEYS;
    this.#shared.count(record?.spec, -1);
    this.#shared.count(spec, 1);
    if (record !== undefined && !this.#canKeep(record, protocol)) {
      this.#leftSlots.push(record.slot);
      record = undefined;
    }
    record ??= this.#newRecord(name, protocol);
    for (const key of keys) {
      const listen = spec.listen[all.indexOf(key)];
      if (listen === undefined) continue;
      this.#sockets.claim(key, { protocol, ...listen }, inheritedPort(key));
      if (!this.#isForAll(spec)) this.#sockets.keepFirst(key);
    }
    record.spec = spec;
    record.keys = keys;
    record.states =
      record.states.size === 0
        ? NO_STATES
        : new Map([...record.states].filter(([key]) => keys.includes(key)));
    if (isShared) record.endpoints = spec.endpoints.length;
    return left;
  }

  #canKeep({ spec, slot, protocol }: ServicePortRecord, wanted: Protocol): boolean {
    return protocol === wanted && (spec !== undefined || this.#memory.activityOf(slot).active > 0);
  }

  #newRecord(name: string, protocol: Protocol): ServicePortRecord {
    const slot = this.#memory.allocate();
    const record: ServicePortRecord = {
      name,
      protocol,
      slot,
      spec: undefined,
      keys: NO_KEYS,
      states: NO_STATES,
      endpoints: 0,
    };
    this.#records.set(name, record);
    return record;
  }

  /** Whether all workers serve it: with session affinity, each remembers only its own clients. */
  #isForAll(spec: ServicePortSpec | undefined): boolean {
    if (spec === undefined) return false;
    // The kernel does not know which service port a client of a shared socket is for.
    return spec.affinity.kind === 'none' || this.#isSteered() || usesSharedSockets(spec);
  }

  #specFor(worker: PoolWorker, record: ServicePortRecord, spec: ServicePortSpec): ServicePortSpec {
    if (worker.index > 0) return this.#sharedSpec(record, spec, worker.index, new Set());
    const wanted = this.#isForAll(spec) ? this.#workers : 1;
    const keys = slotKeys(spec, spec.listen);
    const listen = spec.listen.map((each, index) => {
      const slot = keys[index] ?? '';
      const there = this.#sockets.count(slot);
      const sockets = Math.max(wanted, there);
      return { ...each, group: { slot, sockets, missing: sockets - there } };
    });
    return { ...spec, listen };
  }

  /** For the other workers: they listen where the first one does. */
  #sharedSpec(
    { states }: Pick<ServicePortRecord, 'states'>,
    spec: ServicePortSpec,
    index: number,
    except: ReadonlySet<string>,
  ): ServicePortSpec {
    const keys = slotKeys(spec, spec.listen);
    const listen = spec.listen.flatMap((each, at): ListenSpec[] => {
      const slot = keys[at] ?? '';
      const status = states.get(slot);
      if (status?.state !== 'listening' || except.has(slot)) return [];
      if (!this.#sockets.has(slot, index)) return [];
      const sockets = this.#sockets.count(slot);
      return [{ ...each, port: status.boundPort, group: { slot, sockets, missing: 0 } }];
    });
    return { ...spec, listen };
  }

  #snapshotOf(record: ServicePortRecord): ServicePortSnapshot | undefined {
    const { name, protocol, spec, slot, states, endpoints } = record;
    const counters = this.#memory.read(slot);
    if (spec === undefined) {
      if (counters.active === 0) return undefined;
      return { name, protocol, listeners: [], endpoints: 0, counters, draining: true };
    }
    if (usesSharedSockets(spec)) {
      const listeners = spec.listen.flatMap((listen) => this.#stateOfShared(listen));
      return { name, protocol, listeners, endpoints, counters };
    }
    const keys = slotKeys(spec, spec.listen);
    const listeners = record.keys.flatMap((key) => {
      const listen = spec.listen[keys.indexOf(key)];
      return listen === undefined ? [] : statusOf(states.get(key), listen);
    });
    return { name, protocol, listeners, endpoints, counters };
  }

  #stateOfShared(listen: ListenSpec): ListenerStatus[] {
    const states = this.#records.get(sharedSocketsName(listen.address))?.states;
    return statusOf(states?.values().next().value, listen);
  }
}

const NO_KEYS: readonly string[] = [];

function statusOf(status: ListenerStatus | undefined, listen: ListenSpec): ListenerStatus[] {
  return status === undefined ? [] : [{ ...status, listen }];
}

/** The listeners that are open, as one text. */
function openKeys(states: ReadonlyMap<string, ListenerStatus>): string {
  const open = [...states].flatMap(([key, status]) =>
    status.state === 'listening' ? [`${key} ${status.boundPort}`] : [],
  );
  return open.join();
}
