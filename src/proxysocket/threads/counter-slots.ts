import {
  CONNECT_ERROR_CAUSES,
  CONNECT_SECONDS_BUCKETS,
  GAUGE_COUNTERS,
  newCounters,
  PLAIN_COUNTERS,
  type ServicePortCounters,
} from '../counters.ts';
import type { Activity } from '../core/activity.ts';
import type { CounterStore } from '../core/service-port-book.ts';

/*
 * Counters in memory that two threads share: one writes, the other reads whenever it likes. Each is a
 * 64-bit number at its natural place, which the processors of this engine write in one piece.
 *
 * A slot has, in this order: its generation, the plain counters, connect errors by cause, connect
 * times by bucket, and their sum.
 */

const GENERATION = 0;
const FIRST_PLAIN = 1;
const FIRST_ERROR = FIRST_PLAIN + PLAIN_COUNTERS.length;
const FIRST_BUCKET = FIRST_ERROR + CONNECT_ERROR_CAUSES.length;
const BUCKETS = CONNECT_SECONDS_BUCKETS.length + 1;
const SUM = FIRST_BUCKET + BUCKETS;
const SLOT_LENGTH = SUM + 1;
const ACTIVE = FIRST_PLAIN + PLAIN_COUNTERS.indexOf('active');
const GAUGES = GAUGE_COUNTERS.map((name) => FIRST_PLAIN + PLAIN_COUNTERS.indexOf(name));
const SLOTS_PER_BLOCK = 256;

/** Where the counters of a service port are. */
export interface CounterPlace {
  readonly block: number;
  readonly slot: number;
  /** A slot is used again for another service port; then its generation is another one. */
  readonly generation: number;
}

/** What the counters of a slot are read from and written to. */
class Slot {
  values: Float64Array;

  constructor(values: Float64Array) {
    this.values = values;
  }
}

function counterProperty(slot: Slot, index: number): PropertyDescriptor {
  return {
    enumerable: true,
    get: () => slot.values[index],
    set: (value: number) => {
      slot.values[index] = value;
    },
  };
}

class SlotCounters extends Slot {
  readonly connectErrors: object;
  readonly connectSeconds: object;

  constructor(values: Float64Array) {
    super(values);
    this.connectErrors = connectErrorsOf(this);
    this.connectSeconds = connectSecondsOf(this);
  }
}

function connectErrorsOf(slot: Slot): object {
  const properties = CONNECT_ERROR_CAUSES.map((cause, index) => {
    return [cause, counterProperty(slot, FIRST_ERROR + index)] as const;
  });
  return Object.defineProperties({}, Object.fromEntries(properties));
}

function connectSecondsOf(slot: Slot): object {
  return {
    get counts() {
      return slot.values.subarray(FIRST_BUCKET, SUM);
    },
    get sum() {
      return slot.values[SUM] ?? 0;
    },
    set sum(value: number) {
      slot.values[SUM] = value;
    },
  };
}

for (const [index, name] of PLAIN_COUNTERS.entries()) {
  Object.defineProperty(SlotCounters.prototype, name, {
    get(this: Slot) {
      return this.values[FIRST_PLAIN + index];
    },
    set(this: Slot, value: number) {
      this.values[FIRST_PLAIN + index] = value;
    },
  });
}

/** The writing side: the counters of all service ports of a worker. */
export class CounterSlots implements CounterStore {
  readonly #onBlock: (memory: SharedArrayBuffer) => void;
  readonly #places = new Map<ServicePortCounters, CounterPlace>();
  readonly #free: CounterPlace[] = [];
  /** The blocks of memory, one after another. */
  readonly #blocks: Float64Array[] = [];

  /** `onBlock` is given every block of memory, in order: block 0 first. */
  constructor(onBlock: (memory: SharedArrayBuffer) => void) {
    this.#onBlock = onBlock;
  }

  create(): ServicePortCounters {
    const place = this.#free.pop() ?? this.#grow();
    const values = this.#valuesOf(place);
    values.fill(0);
    values[GENERATION] = place.generation;
    const counters = new SlotCounters(values) as unknown as ServicePortCounters;
    this.#places.set(counters, place);
    return counters;
  }

  /** What is still counted goes nowhere; the slot is given to another service port. */
  release(counters: ServicePortCounters): void {
    const place = this.#places.get(counters);
    if (place === undefined) return;
    this.#places.delete(counters);
    const slot = counters as unknown as Slot;
    slot.values = slot.values.slice();
    const next = { ...place, generation: place.generation + 1 };
    this.#valuesOf(next)[GENERATION] = next.generation;
    this.#free.push(next);
  }

  /** Undefined for counters that have been released. */
  placeOf(counters: ServicePortCounters): CounterPlace | undefined {
    return this.#places.get(counters);
  }

  #grow(): CounterPlace {
    const memory = new SharedArrayBuffer(SLOTS_PER_BLOCK * SLOT_LENGTH * 8);
    const block = this.#blocks.push(new Float64Array(memory)) - 1;
    this.#onBlock(memory);
    for (let slot = SLOTS_PER_BLOCK - 1; slot > 0; slot -= 1) {
      this.#free.push({ block, slot, generation: 1 });
    }
    return { block, slot: 0, generation: 1 };
  }

  #valuesOf({ block, slot }: CounterPlace): Float64Array {
    const start = slot * SLOT_LENGTH;
    return (this.#blocks[block] ?? new Float64Array(0)).subarray(start, start + SLOT_LENGTH);
  }
}

/** The reading side, in another thread. */
export class CounterReader {
  readonly #blocks: Float64Array[] = [];

  addBlock(memory: SharedArrayBuffer): void {
    this.#blocks.push(new Float64Array(memory));
  }

  /** What was counted in a slot, and how many relays there are; undefined when it belongs to another service port. */
  activityOf({
    block,
    slot,
    generation,
  }: CounterPlace): Omit<Activity, 'servicePorts'> | undefined {
    const values = this.#blocks[block];
    const start = slot * SLOT_LENGTH;
    if (values === undefined || values[start + GENERATION] !== generation) return undefined;
    let counted = 0;
    for (let index = start + FIRST_PLAIN; index < start + FIRST_BUCKET; index += 1) {
      counted += values[index] ?? 0;
    }
    for (const gauge of GAUGES) counted -= values[start + gauge] ?? 0;
    return { counted, active: values[start + ACTIVE] ?? 0 };
  }

  /** The present values; undefined when the slot belongs to another service port by now. */
  read({ block, slot, generation }: CounterPlace): ServicePortCounters | undefined {
    const values = this.#blocks[block];
    const start = slot * SLOT_LENGTH;
    if (values === undefined || values[start + GENERATION] !== generation) return undefined;
    const counters = newCounters();
    // Most service ports of a large cluster have never been used, and all of them are read every other second.
    if (isZero(values, start + FIRST_PLAIN, start + SLOT_LENGTH)) return counters;
    const at = (index: number): number => values[start + index] ?? 0;
    for (const [index, name] of PLAIN_COUNTERS.entries()) counters[name] = at(FIRST_PLAIN + index);
    for (const [index, cause] of CONNECT_ERROR_CAUSES.entries()) {
      counters.connectErrors[cause] = at(FIRST_ERROR + index);
    }
    for (let index = 0; index < BUCKETS; index += 1) {
      counters.connectSeconds.counts[index] = at(FIRST_BUCKET + index);
    }
    counters.connectSeconds.sum = at(SUM);
    return counters;
  }
}

function isZero(values: Float64Array, start: number, end: number): boolean {
  for (let index = start; index < end; index += 1) if (values[index] !== 0) return false;
  return true;
}
