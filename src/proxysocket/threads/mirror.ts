import { countedIn, type Activity } from '../core/activity.ts';
import { addCounters, newCounters, type ServicePortCounters } from '../counters.ts';
import type { ServicePortSnapshot } from '../engine.ts';
import { placeKey, slotKeys } from '../core/listener-slot.ts';
import { CounterReader } from './counter-slots.ts';
import type { FormerCounts } from './successor.ts';
import type { Report, ServicePortState } from './protocol.ts';

interface Entry {
  readonly state: ServicePortState;
  /** Whether the worker that told the state is gone. */
  readonly isLost: boolean;
}

/** What a worker has told of its service ports, so that a snapshot asks nobody. */
export class Mirror {
  readonly #entries = new Map<string, Entry>();
  /** Counts of workers that have died, which the present one goes on from. */
  readonly #former = new Map<string, ServicePortCounters>();
  #reader = new CounterReader();

  take({ blocks = [], gone = [], states = [] }: Report): void {
    for (const memory of blocks) this.#reader.addBlock(memory);
    for (const name of gone) {
      this.#entries.delete(name);
      this.#former.delete(name);
    }
    for (const state of states) {
      // Another service port of the same name, which begins from zero.
      const before = this.#entries.get(state.name);
      if (before !== undefined && before.state.protocol !== state.protocol) {
        this.#former.delete(state.name);
      }
      this.#entries.set(state.name, { state, isLost: false });
    }
  }

  snapshot(names?: ReadonlySet<string>): ServicePortSnapshot[] {
    const wanted = names ?? [...this.#entries.keys()];
    const found: ServicePortSnapshot[] = [];
    for (const name of wanted) {
      const entry = this.#entries.get(name);
      if (entry === undefined) continue;
      const snapshot = this.#snapshotOf(entry);
      if (snapshot === undefined) this.#entries.delete(name);
      else found.push(snapshot);
    }
    return found;
  }

  names(): string[] {
    return [...this.#entries.keys()];
  }

  activity(): Activity {
    let [counted, active] = [0, 0];
    for (const { state, isLost } of this.#entries.values()) {
      const present = isLost ? undefined : this.#reader.activityOf(state.counters);
      const former = this.#former.get(state.name);
      counted += present?.counted ?? 0;
      active += present?.active ?? 0;
      if (former !== undefined) counted += countedIn(former);
    }
    return { servicePorts: this.#entries.size, counted, active };
  }

  /** The ports of listeners that had asked for any, by the key of their place. */
  chosenPorts(): Map<string, number> {
    const ports = new Map<string, number>();
    for (const { state } of this.#entries.values()) {
      const keys = slotKeys(
        state,
        state.listeners.map(({ listen }) => listen),
      );
      for (const [index, status] of state.listeners.entries()) {
        if (status.state !== 'listening' || status.listen.port !== 0) continue;
        ports.set(keys[index] ?? '', status.boundPort);
      }
    }
    return ports;
  }

  /** Where listeners are open, whatever port they had asked for: see `placeKey`. */
  places(): Set<string> {
    const places = new Set<string>();
    for (const { state } of this.#entries.values()) {
      for (const status of state.listeners) {
        if (status.state !== 'listening') continue;
        places.add(placeKey(state.protocol, status.listen.address, status.boundPort));
      }
    }
    return places;
  }

  /** The worker is gone, and all its relays. Its counts are kept; the next one opens its listeners again. */
  lose(): void {
    for (const [name, entry] of this.#entries) {
      if (entry.state.draining) {
        this.#entries.delete(name);
        this.#former.delete(name);
        continue;
      }
      if (!entry.isLost) this.#former.set(name, { ...this.#countersOf(entry), active: 0, held: 0 });
      this.#entries.set(name, { state: entry.state, isLost: true });
    }
    this.#reader = new CounterReader();
  }

  /** What workers that are gone have counted, for an engine that goes on from there. */
  formerCounts(): Map<string, FormerCounts> {
    const counts = new Map<string, FormerCounts>();
    for (const [name, { state }] of this.#entries) {
      const counters = this.#former.get(name);
      if (counters !== undefined) counts.set(name, { protocol: state.protocol, counters });
    }
    return counts;
  }

  clear(): void {
    this.#entries.clear();
    this.#former.clear();
  }

  #snapshotOf(entry: Entry): ServicePortSnapshot | undefined {
    const { name, protocol, listeners, endpoints, draining } = entry.state;
    const counters = this.#countersOf(entry);
    if (!draining) return { name, protocol, listeners, endpoints, counters };
    // The worker does not tell that the last relay has ended: the counters do.
    if (counters.active === 0) return undefined;
    return { name, protocol, listeners, endpoints, counters, draining };
  }

  #countersOf({ state, isLost }: Entry): ServicePortCounters {
    const present = isLost ? undefined : this.#reader.read(state.counters);
    const former = this.#former.get(state.name);
    if (former === undefined) return present ?? newCounters();
    return present === undefined ? { ...former } : addCounters(present, former);
  }
}
