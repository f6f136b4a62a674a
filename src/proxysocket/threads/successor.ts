import { addCounters, type ServicePortCounters } from '../counters.ts';
import type { Engine, ServicePortSnapshot } from '../engine.ts';
import type { Protocol } from '../spec.ts';

/**
 * Makes the engine that takes over where workers die again and again. `formerPort` tells which port
 * the listener of a place that asks for any port has had.
 */
export type MakeSuccessor = (formerPort: FormerPort) => Promise<Engine>;
export type FormerPort = (key: string) => number | undefined;

/** So many deaths within this time, and no other worker is tried. Milliseconds. */
const TOO_MANY = 3;
const WITHIN_MS = 60_000;

/**
 * Counts the deaths of workers, of all that carry one engine's traffic, to find out that there is no use in
 * starting another one.
 */
export class Deaths {
  readonly #at: number[] = [];
  #areTooMany = false;

  /** A worker has died, or did not even start. `now` in milliseconds. */
  add(now: number): void {
    this.#at.push(now);
    if (this.#at.length > TOO_MANY) this.#at.shift();
    const [first = now] = this.#at;
    if (this.#at.length === TOO_MANY && now - first <= WITHIN_MS) this.#areTooMany = true;
  }

  /** Whether some came too close together, and that stays so. */
  get areTooMany(): boolean {
    return this.#areTooMany;
  }
}

/** What has been counted for a service port by engines that are gone. */
export interface FormerCounts {
  readonly protocol: Protocol;
  readonly counters: ServicePortCounters;
}

/** What an engine tells, with the counts of those before it added. */
export class Succession {
  readonly engine: Engine;
  readonly #former: Map<string, FormerCounts>;

  constructor(engine: Engine, former: ReadonlyMap<string, FormerCounts>) {
    this.engine = engine;
    this.#former = new Map(former);
  }

  snapshot(names?: ReadonlySet<string>): ServicePortSnapshot[] {
    const found = this.engine.snapshot(names);
    this.#forgetOthers(found, names ?? this.#former.keys());
    return found.map((each) => this.#continued(each));
  }

  #continued(snapshot: ServicePortSnapshot): ServicePortSnapshot {
    const former = this.#former.get(snapshot.name);
    if (former === undefined) return snapshot;
    return { ...snapshot, counters: addCounters(snapshot.counters, former.counters) };
  }

  /** A service port that is gone, or has another protocol now, would begin from zero. */
  #forgetOthers(found: readonly ServicePortSnapshot[], asked: Iterable<string>): void {
    const protocols = new Map(found.map(({ name, protocol }) => [name, protocol]));
    for (const name of asked) {
      if (this.#former.get(name)?.protocol !== protocols.get(name)) this.#former.delete(name);
    }
  }
}
