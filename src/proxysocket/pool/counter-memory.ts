import {
  CONNECT_ERROR_CAUSES,
  CONNECT_SECONDS_BUCKETS,
  GAUGE_COUNTERS,
  newCounters,
  PLAIN_COUNTERS,
  type Activity,
  type ServicePortCounters,
} from '../counters.ts';
import type { CounterStore } from '../core/service-port-table.ts';

/**
 * Counters in memory that threads share: a slot for each service port, with a row for each thread. A thread writes only
 * its own rows; the main thread may read all of them at any time. Each counter is an aligned 64-bit number, which the
 * supported processors write atomically. A row outlives its thread.
 *
 * A row has, in this order: the plain counters, connect errors by cause, connect times by bucket, their sum, and whether
 * its thread has ever used it: most service ports of a large cluster have no client, and all are read every other second.
 */

const FIRST_ERROR = PLAIN_COUNTERS.length;
const FIRST_BUCKET = FIRST_ERROR + CONNECT_ERROR_CAUSES.length;
const BUCKETS = CONNECT_SECONDS_BUCKETS.length + 1;
const SUM = FIRST_BUCKET + BUCKETS;
const USED = SUM + 1;
const ROW_LENGTH = USED + 1;
const ACTIVE = PLAIN_COUNTERS.indexOf('active');
const GAUGES = GAUGE_COUNTERS.map((name) => PLAIN_COUNTERS.indexOf(name));
const SLOTS_PER_BLOCK = 4096;

/** Location of a thread's row: the index of its block, and of its first number there. */
function locate(slot: number, row: number, rows: number): { block: number; start: number } {
  const block = Math.floor(slot / SLOTS_PER_BLOCK);
  return { block, start: ((slot % SLOTS_PER_BLOCK) * rows + row) * ROW_LENGTH };
}

/** The main thread's side: hands out slots and reads them. */
export class CounterMemory {
  /** How many threads may count. */
  readonly rows: number;
  readonly #blocks: Float64Array[] = [];
  readonly #free: number[] = [];
  #slots = 0;

  constructor(rows: number) {
    this.rows = rows;
  }

  /** All blocks of memory, in order, for a thread that counts. */
  get blocks(): readonly SharedArrayBuffer[] {
    return this.#blocks.map(({ buffer }) => buffer as SharedArrayBuffer);
  }

  /** A zeroed slot. New memory is zero, and takes no room before it is written. */
  allocate(): number {
    const slot = this.#free.pop();
    if (slot === undefined) return this.#grow();
    for (let row = 0; row < this.rows; row += 1) this.#row(slot, row).fill(0);
    return slot;
  }

  /** The slot may be reused for another service port. */
  free(slot: number): void {
    this.#free.push(slot);
  }

  /** A thread has ended with its connections; its counts stay. Writes only what differs: most memory is unused. */
  dropRow(row: number): void {
    for (let slot = 0; slot < this.#slots; slot += 1) {
      const values = this.#row(slot, row);
      for (const gauge of GAUGES) if (values[gauge] !== 0) values[gauge] = 0;
    }
  }

  /** The sum over all threads. Not to be changed: unused slots share it. */
  read(slot: number): ServicePortCounters {
    let counters: ServicePortCounters | undefined;
    for (let row = 0; row < this.rows; row += 1) {
      if (this.#isUsed(slot, row)) add((counters ??= newCounters()), this.#row(slot, row));
    }
    return counters ?? UNUSED;
  }

  /** The counters, and the number of relays. */
  activityOf(slot: number): Omit<Activity, 'servicePorts'> {
    let [counted, active] = [0, 0];
    for (let row = 0; row < this.rows; row += 1) {
      if (!this.#isUsed(slot, row)) continue;
      const values = this.#row(slot, row);
      for (let index = 0; index < FIRST_BUCKET; index += 1) counted += values[index] ?? 0;
      for (const gauge of GAUGES) counted -= values[gauge] ?? 0;
      active += values[ACTIVE] ?? 0;
    }
    return { counted, active };
  }

  #isUsed(slot: number, row: number): boolean {
    const { block, start } = locate(slot, row, this.rows);
    return this.#blocks[block]?.[start + USED] === 1;
  }

  #row(slot: number, row: number): Float64Array {
    const { block, start } = locate(slot, row, this.rows);
    return (this.#blocks[block] ?? new Float64Array(0)).subarray(start, start + ROW_LENGTH);
  }

  #grow(): number {
    if (this.#slots % SLOTS_PER_BLOCK === 0) {
      const bytes = SLOTS_PER_BLOCK * this.rows * ROW_LENGTH * Float64Array.BYTES_PER_ELEMENT;
      this.#blocks.push(new Float64Array(new SharedArrayBuffer(bytes)));
    }
    this.#slots += 1;
    return this.#slots - 1;
  }
}

const UNUSED: ServicePortCounters = Object.freeze(newCounters());

function add(counters: ServicePortCounters, values: Float64Array): void {
  const at = (index: number): number => values[index] ?? 0;
  for (const [index, name] of PLAIN_COUNTERS.entries()) counters[name] += at(index);
  for (const [index, cause] of CONNECT_ERROR_CAUSES.entries()) {
    counters.connectErrors[cause] += at(FIRST_ERROR + index);
  }
  const { counts } = counters.connectSeconds;
  for (let bucket = 0; bucket < BUCKETS; bucket += 1) {
    counts[bucket] = (counts[bucket] ?? 0) + at(FIRST_BUCKET + bucket);
  }
  counters.connectSeconds.sum += at(SUM);
}

/** The counters of a service port, in the row of a thread. What few of them use is made when it is asked for. */
class RowCounters {
  readonly slot: number;
  values: Float64Array;
  #errors: ErrorCounters | undefined;
  #seconds: ConnectSeconds | undefined;

  constructor(slot: number, values: Float64Array) {
    this.slot = slot;
    this.values = values;
  }

  get connectErrors(): object {
    return (this.#errors ??= new ErrorCounters(this));
  }

  get connectSeconds(): object {
    return (this.#seconds ??= new ConnectSeconds(this));
  }
}

class ErrorCounters {
  readonly row: RowCounters;

  constructor(row: RowCounters) {
    this.row = row;
  }
}

class ConnectSeconds {
  readonly #row: RowCounters;

  constructor(row: RowCounters) {
    this.#row = row;
  }

  get counts(): Float64Array {
    return this.#row.values.subarray(FIRST_BUCKET, SUM);
  }

  get sum(): number {
    return this.#row.values[SUM] ?? 0;
  }

  set sum(value: number) {
    this.#row.values[SUM] = value;
  }
}

for (const [index, name] of PLAIN_COUNTERS.entries()) {
  Object.defineProperty(RowCounters.prototype, name, {
    get(this: RowCounters) {
      return this.values[index];
    },
    set(this: RowCounters, value: number) {
      this.values[index] = value;
    },
  });
}
for (const [index, cause] of CONNECT_ERROR_CAUSES.entries()) {
  Object.defineProperty(ErrorCounters.prototype, cause, {
    get(this: ErrorCounters) {
      return this.row.values[FIRST_ERROR + index];
    },
    set(this: ErrorCounters, value: number) {
      this.row.values[FIRST_ERROR + index] = value;
    },
  });
}

/** The writing side: the rows of one thread. */
export class CounterRows implements CounterStore {
  readonly #row: number;
  readonly #rows: number;
  #blocks: readonly Float64Array[] = [];
  /** By slot: who counts there. */
  readonly #users = new Map<number, RowCounters>();

  constructor(row: number, rows: number) {
    this.#row = row;
    this.#rows = rows;
  }

  /**
   * Takes the main thread's memory; call it before service ports are set that count in what is new. `freed`: slots that
   * are about to be reused, where nothing counts any more.
   */
  assign(blocks: readonly SharedArrayBuffer[], freed: readonly number[] = []): void {
    for (const slot of freed) this.#leave(slot);
    for (const memory of blocks.slice(this.#blocks.length)) {
      this.#blocks = [...this.#blocks, new Float64Array(memory)];
    }
  }

  create(slot: number | undefined, previous?: ServicePortCounters): ServicePortCounters {
    if (slot === undefined) throw new Error('no slot for counters');
    if (previous !== undefined && this.#users.get(slot) === (previous as unknown)) return previous;
    this.#leave(slot);
    const { block, start } = locate(slot, this.#row, this.#rows);
    const values = this.#blocks[block]?.subarray(start, start + ROW_LENGTH);
    const counters = new RowCounters(slot, values ?? new Float64Array(ROW_LENGTH));
    counters.values[USED] = 1;
    this.#users.set(slot, counters);
    return counters as unknown as ServicePortCounters;
  }

  /** Further counts are discarded. */
  release(counters: object): void {
    const { slot } = counters as RowCounters;
    if (this.#users.get(slot) === counters) this.#leave(slot);
  }

  #leave(slot: number): void {
    const user = this.#users.get(slot);
    if (user === undefined) return;
    this.#users.delete(slot);
    user.values = user.values.slice();
  }
}
