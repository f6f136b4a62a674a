import {
  CONNECT_ERROR_CAUSES,
  CONNECT_SECONDS_BUCKETS,
  GAUGE_COUNTERS,
  newCounters,
  PLAIN_COUNTERS,
  UNUSED,
  type Activity,
  type NewCounters,
  type ServicePortCounters,
} from '../counters.ts';
import type { Protocol, ServicePortSpec } from '../spec.ts';

/**
 * The counters of a service port in one thread, in memory that outlives it. Each is an aligned 64-bit number, which the
 * supported processors write atomically: plain counters, connect errors by cause, connect times by bucket, their sum.
 */
type CounterRow = Float64Array;

/** What one thread has counted, or all threads that have ended (undefined). */
interface ThreadRow {
  readonly thread: object | undefined;
  readonly row: CounterRow;
}

const FIRST_ERROR = PLAIN_COUNTERS.length;
const FIRST_BUCKET = FIRST_ERROR + CONNECT_ERROR_CAUSES.length;
const SUM = FIRST_BUCKET + CONNECT_SECONDS_BUCKETS.length + 1;
const ROW_LENGTH = SUM + 1;
const ACTIVE = PLAIN_COUNTERS.indexOf('active');
const GAUGES = GAUGE_COUNTERS.map((name) => PLAIN_COUNTERS.indexOf(name));

function sumOf(rows: readonly ThreadRow[]): CounterRow {
  const sum = new Float64Array(ROW_LENGTH);
  for (const { row } of rows) {
    for (let index = 0; index < ROW_LENGTH; index += 1)
      sum[index] = (sum[index] ?? 0) + (row[index] ?? 0);
  }
  return sum;
}

/** What a pool knows of a service port. */
export class ServicePortRecord {
  readonly name: string;
  readonly protocol: Protocol;
  /** Identifies its counters among those that its name has had; never reused. */
  readonly slot: number;
  spec: ServicePortSpec;
  #rows: readonly ThreadRow[] = NO_ROWS;

  constructor(spec: ServicePortSpec, slot: number) {
    this.name = spec.name;
    this.protocol = spec.protocol;
    this.spec = spec;
    this.slot = slot;
  }

  /** The sum of all threads. */
  get counters(): ServicePortCounters {
    if (this.#rows === NO_ROWS) return UNUSED;
    const sum = sumOf(this.#rows);
    const counters = newCounters();
    for (const [index, name] of PLAIN_COUNTERS.entries()) counters[name] = sum[index] ?? 0;
    for (const [index, cause] of CONNECT_ERROR_CAUSES.entries())
      counters.connectErrors[cause] = sum[FIRST_ERROR + index] ?? 0;
    counters.connectSeconds = { counts: [...sum.subarray(FIRST_BUCKET, SUM)], sum: sum[SUM] ?? 0 };
    return counters;
  }

  /** The same in short, without an object for each of many service ports. */
  get activity(): Omit<Activity, 'servicePorts'> {
    let [counted, active] = [0, 0];
    for (const { row } of this.#rows) {
      for (let index = 0; index < FIRST_BUCKET; index += 1) counted += row[index] ?? 0;
      for (const gauge of GAUGES) counted -= row[gauge] ?? 0;
      active += row[ACTIVE] ?? 0;
    }
    return { counted, active };
  }

  /** A thread has begun to count. It may have before, if the service port was removed and set again. */
  counts(thread: object, memory: SharedArrayBuffer): void {
    this.countsNoMore(thread);
    this.#rows = [...this.#rows, { thread, row: new Float64Array(memory) }];
  }

  /** A thread has ended with its connections; its counts stay. */
  countsNoMore(ended: object): void {
    if (!this.#rows.some(({ thread }) => thread === ended)) return;
    const isOver = ({ thread }: ThreadRow): boolean => thread === ended || thread === undefined;
    const row = sumOf(this.#rows.filter(isOver));
    for (const gauge of GAUGES) row[gauge] = 0;
    this.#rows = [...this.#rows.filter((each) => !isOver(each)), { thread: undefined, row }];
  }
}

const NO_ROWS: readonly ThreadRow[] = [];

const UNUSED_ROW: CounterRow = new Float64Array(ROW_LENGTH);

/**
 * The counters of a service port in a thread. Its memory is allocated with the first count, since most service ports of
 * a large cluster have no client. One object is also `connectErrors` and `connectSeconds`.
 */
class RowCounters {
  readonly #name: string;
  readonly slot: number;
  row = UNUSED_ROW;
  readonly #onFirst: OnFirstCount;

  constructor(name: string, slot: number, onFirst: OnFirstCount) {
    this.#name = name;
    this.slot = slot;
    this.#onFirst = onFirst;
  }

  get connectErrors(): object {
    return this;
  }

  get connectSeconds(): object {
    return this;
  }

  get counts(): CounterRow {
    return this.writable().subarray(FIRST_BUCKET, SUM);
  }

  writable(): CounterRow {
    if (this.row === UNUSED_ROW) {
      const memory = new SharedArrayBuffer(ROW_LENGTH * Float64Array.BYTES_PER_ELEMENT);
      this.row = new Float64Array(memory);
      this.#onFirst(this.#name, this.slot, memory);
    }
    return this.row;
  }
}

for (const [index, name] of [...PLAIN_COUNTERS, ...CONNECT_ERROR_CAUSES].entries()) {
  defineCounter(name, index);
}
defineCounter('sum', SUM);

function defineCounter(name: string, index: number): void {
  Object.defineProperty(RowCounters.prototype, name, {
    get(this: RowCounters) {
      return this.row[index];
    },
    set(this: RowCounters, value: number) {
      this.writable()[index] = value;
    },
  });
}

/** Hands the memory of a service port's counters to the main thread. `slot`: see `EngineChange`. */
type OnFirstCount = (name: string, slot: number, memory: SharedArrayBuffer) => void;

export function sharedCounters(onFirst: OnFirstCount): NewCounters {
  return (name, slot, previous) => {
    if (slot === undefined) throw new Error('no slot for counters');
    const before = previous as unknown as RowCounters | undefined;
    const counters = before?.slot === slot ? before : new RowCounters(name, slot, onFirst);
    return counters as unknown as ServicePortCounters;
  };
}
