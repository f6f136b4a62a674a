import { countedIn, type Activity, type ServicePortCounters } from '../counters.ts';
import type { ServicePortSnapshot } from '../engine.ts';
import type { Protocol } from '../spec.ts';

interface Entry {
  readonly name: string;
  readonly protocol: Protocol;
  readonly counters: ServicePortCounters;
}

/** The service ports of an engine: those that are set, and those removed that still have relays. */
export class ServicePortTable<O extends Entry> {
  readonly #stateOf: (owner: O) => Pick<ServicePortSnapshot, 'listeners' | 'endpoints'>;
  readonly #activityOf: (owner: O) => Omit<Activity, 'servicePorts'>;
  readonly #present = new Map<string, O>();
  readonly #removed = new Map<string, O>();

  /** `activityOf`: what `counters` shows, where that costs less. */
  constructor(
    stateOf: (owner: O) => Pick<ServicePortSnapshot, 'listeners' | 'endpoints'>,
    activityOf: (owner: O) => Omit<Activity, 'servicePorts'> = ({ counters }) => ({
      counted: countedIn(counters),
      active: counters.active,
    }),
  ) {
    this.#stateOf = stateOf;
    this.#activityOf = activityOf;
  }

  get(name: string): O | undefined {
    return this.#present.get(name);
  }

  /** The one whose counters continue if this is set, also after a removal. */
  continued(name: string, protocol: Protocol): O | undefined {
    const owner = this.find(name);
    if (owner?.protocol !== protocol) return undefined;
    return this.#present.has(name) || owner.counters.active > 0 ? owner : undefined;
  }

  set(owner: O): O {
    this.#removed.delete(owner.name);
    this.#present.set(owner.name, owner);
    return owner;
  }

  /** Also of one that was removed. */
  find(name: string): O | undefined {
    return this.#present.get(name) ?? this.#removed.get(name);
  }

  *all(): Iterable<O> {
    yield* this.#present.values();
    yield* this.#removed.values();
  }

  /** Removes a service port, which stays in the snapshot while it has relays. */
  remove(name: string): O | undefined {
    const owner = this.#present.get(name);
    if (owner === undefined) return undefined;
    this.#present.delete(name);
    this.#removed.set(name, owner);
    return owner;
  }

  clear(): readonly O[] {
    return [...this.#present.keys()].flatMap((name) => this.remove(name) ?? []);
  }

  snapshot(names: Iterable<string> = this.names()): ServicePortSnapshot[] {
    return [...names].flatMap((name): ServicePortSnapshot[] => {
      const owner = this.find(name);
      if (owner === undefined) return [];
      const { protocol, counters } = owner;
      if (this.#present.has(name)) return [{ name, protocol, counters, ...this.#stateOf(owner) }];
      if (counters.active === 0) return [];
      return [{ name, protocol, counters, listeners: [], endpoints: 0, draining: true }];
    });
  }

  names(): string[] {
    return Array.from(this.#shown(), ({ name }) => name);
  }

  activity(): Activity {
    let [servicePorts, counted, active] = [0, 0, 0];
    for (const owner of this.#shown()) {
      const its = this.#activityOf(owner);
      servicePorts += 1;
      counted += its.counted;
      active += its.active;
    }
    return { servicePorts, counted, active };
  }

  /** Forgets removed service ports without relays, once they have been removed everywhere and get none. */
  forget(): void {
    for (const [name, owner] of this.#removed)
      if (!this.#hasRelays(owner)) this.#removed.delete(name);
  }

  *#shown(): Iterable<O> {
    yield* this.#present.values();
    for (const owner of this.#removed.values()) if (this.#hasRelays(owner)) yield owner;
  }

  #hasRelays(owner: O): boolean {
    return this.#activityOf(owner).active > 0;
  }
}
