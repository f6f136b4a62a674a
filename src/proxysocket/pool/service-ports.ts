import type { Activity } from '../counters.ts';
import type { ListenerTable } from '../core/listener-table.ts';
import {
  isSharedSockets,
  sharedChange,
  sharedSocketsName,
  usesSharedSockets,
} from '../core/shared-service-ports.ts';
import type { ServicePortSnapshot } from '../engine.ts';
import type { EngineChange, ListenerStatus, ListenSpec, ServicePortSpec } from '../spec.ts';
import {
  activityIn,
  countersIn,
  withoutThread,
  type ServicePortRecord,
  type ThreadRow,
} from './counter-memory.ts';
import type { PoolListener } from './listening-sockets.ts';
import type { Batch } from './protocol.ts';
import type { PoolWorker } from './worker.ts';

type Listeners = Pick<
  ListenerTable<ServicePortRecord, PoolListener>,
  'set' | 'openOf' | 'statusOf'
>;

const NO_ROWS: readonly ThreadRow[] = [];

/**
 * The desired state of a pool, with what its workers have counted. Shared sockets are service ports without endpoints
 * here, which snapshots leave out; their states are those of the listeners that use them.
 */
export class ServicePorts {
  readonly #listeners: Listeners;
  readonly #records = new Map<string, ServicePortRecord>();
  readonly #bySlot = new Map<number, ServicePortRecord>();
  /** How many listeners need the shared sockets at an address. */
  readonly #sharedUsers = new Map<string, number>();
  readonly #removed = new Set<string>();
  #slots = 0;

  constructor(listeners: Listeners) {
    this.#listeners = listeners;
  }

  /**
   * Applies a batch to the desired state. Returns it with counter slots and the shared sockets to open or close, and
   * whether a service port leaves an address, which workers have to do before the address is free.
   */
  note(changes: readonly EngineChange[]): { changes: readonly EngineChange[]; leaves: boolean } {
    const isLeft = this.#noteAll(changes);
    const ofShared = this.#sharedChanges();
    const leaves = this.#noteAll(ofShared) || isLeft;
    return { changes: [...ofShared, ...changes].map((change) => this.#withSlot(change)), leaves };
  }

  settled(changes: readonly EngineChange[]): void {
    for (const change of changes) {
      if (change.kind !== 'remove') continue;
      if (this.#records.get(change.name)?.spec === undefined) this.#removed.add(change.name);
    }
    this.#tidy();
  }

  /** Has the listeners that are open. */
  batch(worker: PoolWorker, changes: readonly EngineChange[]): Batch {
    const sockets: Batch['sockets'][number][] = [];
    const set = (name: string): Batch['changes'][number] => {
      const record = this.#records.get(name);
      const spec = record?.spec;
      if (record === undefined || spec === undefined) return { kind: 'remove', name };
      const { slot } = record;
      if (usesSharedSockets(spec)) return sharedChange(spec, slot);
      const listen: ListenSpec[] = [];
      for (const { listen: each, listener } of this.#listeners.openOf(record)) {
        sockets.push(...listener.give(worker));
        listen.push({ ...each, port: listener.boundPort });
      }
      return { kind: 'set', spec: { ...spec, listen }, slot };
    };
    const forWorker = changes.map((change) =>
      change.kind === 'set' ? set(change.spec.name) : change,
    );
    return { changes: forWorker, sockets };
  }

  /** The desired state of some service ports, or of all, with where they count. */
  sets(names: Iterable<string> = this.#records.keys()): EngineChange[] {
    return [...names].flatMap((name): EngineChange[] => {
      const { spec, slot } = this.#records.get(name) ?? {};
      return spec === undefined ? [] : [{ kind: 'set', spec, slot }];
    });
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
      const record = change.kind === 'remove' ? this.#records.get(change.name) : undefined;
      if (record !== undefined) leaves = this.#unset(record) || leaves;
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

  #unset(record: ServicePortRecord): boolean {
    this.#countShared(record.spec, -1);
    record.spec = undefined;
    return this.#listeners.set(record, []);
  }

  #set(spec: ServicePortSpec): boolean {
    const { name, protocol } = spec;
    const before = this.#records.get(name);
    this.#countShared(before?.spec, -1);
    this.#countShared(spec, 1);
    const isNew = before === undefined || before.protocol !== protocol || !isUsed(before);
    const record = isNew ? this.#newRecord(spec) : before;
    record.spec = spec;
    const leaves = this.#listeners.set(record, usesSharedSockets(spec) ? [] : spec.listen);
    if (before === undefined || record === before) return leaves;
    this.#bySlot.delete(before.slot);
    return this.#listeners.set(before, []) || leaves;
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

  #newRecord({ name, protocol }: ServicePortSpec): ServicePortRecord {
    const slot = this.#slots;
    this.#slots += 1;
    const record = { name, protocol, slot, rows: NO_ROWS, spec: undefined };
    this.#records.set(name, record);
    this.#bySlot.set(slot, record);
    return record;
  }

  #snapshotOf(record: ServicePortRecord): ServicePortSnapshot[] {
    const { name, protocol, spec, rows } = record;
    const counters = countersIn(rows);
    if (spec === undefined) {
      if (counters.active === 0) return [];
      return [{ name, protocol, listeners: [], endpoints: 0, counters, draining: true }];
    }
    const listeners = usesSharedSockets(spec)
      ? spec.listen.flatMap((listen): ListenerStatus[] => {
          const shared = this.#records.get(sharedSocketsName(listen.address));
          const [status] = shared === undefined ? [] : this.#listeners.statusOf(shared);
          return status === undefined ? [] : [{ ...status, listen }];
        })
      : this.#listeners.statusOf(record);
    return [{ name, protocol, listeners, endpoints: spec.endpoints.length, counters }];
  }
}

/** Whether its counters continue if it is set again. */
function isUsed({ spec, rows }: ServicePortRecord): boolean {
  return spec !== undefined || activityIn(rows).active > 0;
}
