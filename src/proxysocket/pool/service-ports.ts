import type { ListenerTable } from '../core/listener-table.ts';
import { ServicePortTable } from '../core/service-port-table.ts';
import {
  sharedChange,
  sharedSocketsName,
  usesSharedSockets,
} from '../core/shared-service-ports.ts';
import type { EngineChange, ListenerStatus, ListenSpec, ServicePortSpec } from '../spec.ts';
import { ServicePortRecord } from './counter-memory.ts';
import type { PoolListener } from './listening-sockets.ts';
import type { Batch } from './protocol.ts';
import type { PoolWorker } from './worker.ts';

type Listeners = Pick<ListenerTable<ServicePortRecord, PoolListener>, 'set' | 'open' | 'statusOf'>;

/**
 * The desired state of a pool, with what its workers have counted. Shared sockets are service ports without endpoints
 * here, which are not in the table; their states are those of the listeners that use them.
 */
export class ServicePorts {
  readonly table = new ServicePortTable<ServicePortRecord>(
    (record) => ({
      listeners: this.#statusOf(record),
      endpoints: record.spec.endpoints.length,
    }),
    ({ activity }) => activity,
  );
  readonly #listeners: Listeners;
  /** The owners of shared sockets, by name. */
  readonly #shared = new Map<string, ServicePortRecord>();
  /** How many listeners need the shared sockets at an address. */
  readonly #sharedUsers = new Map<string, number>();
  #slots = 0;

  constructor(listeners: Listeners) {
    this.#listeners = listeners;
  }

  /**
   * Applies a batch to the desired state. Returns it with the shared sockets to open or close, and whether a service
   * port leaves an address, which workers have to do before the address is free.
   */
  note(changes: readonly EngineChange[]): { changes: readonly EngineChange[]; leaves: boolean } {
    let leaves = false;
    for (const change of changes)
      if (change.kind === 'remove') leaves = this.#remove(change.name) || leaves;
    for (const change of changes) {
      if (change.kind === 'set') leaves = this.#set(change.spec) || leaves;
      else if (change.kind === 'endpoints') {
        const record = this.table.get(change.name);
        if (record !== undefined) record.spec = { ...record.spec, endpoints: change.endpoints };
      }
    }
    const ofShared = this.#noteShared();
    return {
      changes: [...ofShared, ...changes],
      leaves: leaves || ofShared.some(({ kind }) => kind === 'remove'),
    };
  }

  /** Has the listeners that are open. */
  batch(worker: PoolWorker, changes: readonly EngineChange[]): Batch {
    const sockets: Batch['sockets'][number][] = [];
    const set = (name: string): Batch['changes'][number] => {
      const record = this.#get(name);
      if (record === undefined) return { kind: 'remove', name };
      const { spec, slot } = record;
      if (usesSharedSockets(spec)) return sharedChange(spec, slot);
      const listen: ListenSpec[] = [];
      for (const { listen: each, listener } of this.#listeners.open(record)) {
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
  sets(names: Iterable<string> = [...this.#shared.keys(), ...this.table.names()]): EngineChange[] {
    return [...names].flatMap((name): EngineChange[] => {
      const { spec, slot } = this.#get(name) ?? {};
      return spec === undefined ? [] : [{ kind: 'set', spec, slot }];
    });
  }

  counts(thread: object, name: string, slot: number, memory: SharedArrayBuffer): void {
    const record = this.table.find(name);
    if (record?.slot === slot) record.counts(thread, memory);
  }

  countsNoMore(thread: object): void {
    for (const record of this.table.all()) record.countsNoMore(thread);
  }

  /** The changes with where service ports count. */
  withSlots(changes: readonly EngineChange[]): EngineChange[] {
    return changes.map((change) =>
      change.kind === 'set' ? { ...change, slot: this.#get(change.spec.name)?.slot } : change,
    );
  }

  #get(name: string): ServicePortRecord | undefined {
    return this.table.get(name) ?? this.#shared.get(name);
  }

  #remove(name: string): boolean {
    const record = this.table.remove(name);
    if (record === undefined) return false;
    this.#countShared(record.spec, -1);
    return this.#listeners.set(record, []);
  }

  #set(spec: ServicePortSpec): boolean {
    const before = this.table.get(spec.name);
    this.#countShared(before?.spec, -1);
    this.#countShared(spec, 1);
    const record = this.table.continued(spec.name, spec.protocol) ?? this.#newRecord(spec);
    record.spec = spec;
    this.table.set(record);
    const leaves = this.#listeners.set(record, usesSharedSockets(spec) ? [] : spec.listen);
    if (before === undefined || record === before) return leaves;
    return this.#listeners.set(before, []) || leaves;
  }

  #countShared(spec: ServicePortSpec | undefined, by: 1 | -1): void {
    if (spec === undefined || !usesSharedSockets(spec)) return;
    for (const { address } of spec.listen)
      this.#sharedUsers.set(address, (this.#sharedUsers.get(address) ?? 0) + by);
  }

  #noteShared(): EngineChange[] {
    return [...this.#sharedUsers].flatMap(([address, users]): EngineChange[] => {
      const name = sharedSocketsName(address);
      const record = this.#shared.get(name);
      if (users > 0 === (record !== undefined)) return [];
      if (record !== undefined) {
        this.#shared.delete(name);
        this.#listeners.set(record, []);
        return [{ kind: 'remove', name }];
      }
      const listen = [{ address, port: 0, traffic: 'internal', transparent: [] }] as const;
      const affinity = { kind: 'none' } as const;
      const spec: ServicePortSpec = { name, protocol: 'TCP', listen, endpoints: [], affinity };
      const shared = this.#newRecord(spec);
      this.#shared.set(name, shared);
      this.#listeners.set(shared, listen);
      return [{ kind: 'set', spec }];
    });
  }

  #newRecord(spec: ServicePortSpec): ServicePortRecord {
    this.#slots += 1;
    return new ServicePortRecord(spec, this.#slots);
  }

  #statusOf(record: ServicePortRecord): ListenerStatus[] {
    const { spec } = record;
    if (!usesSharedSockets(spec)) return this.#listeners.statusOf(record);
    return spec.listen.flatMap((listen): ListenerStatus[] => {
      const shared = this.#shared.get(sharedSocketsName(listen.address));
      const [status] = shared === undefined ? [] : this.#listeners.statusOf(shared);
      return status === undefined ? [] : [{ ...status, listen }];
    });
  }
}
