import { isDeepStrictEqual } from 'node:util';
import type { Activity } from '../proxysocket/counters.ts';
import type { Engine } from '../proxysocket/engine.ts';
import {
  addTraffic,
  NO_TRAFFIC,
  snapshotParts,
  type SnapshotSource,
  totalsOf,
  type Traffic,
  TRAFFIC_KEYS,
} from '../observe/service-state.ts';
import type { Clock, Timer } from '../util/clock.ts';

/** Maximum number of service ports with a history of their own: 3 MB. */
export const MAX_HISTORIES = 1000;
const SPARK_POINTS = 30;

/** `activity` shows whether any traffic has flowed since the last call; undefined: only the counters do. */
export type SampledEngine = SnapshotSource & Required<Pick<Engine, 'activity'>>;

export type Sampler = ReturnType<typeof startSampler>;

/**
 * Samples the counters every other second, for rates and a history of the last five minutes: of all service ports
 * together, and of each that has traffic, up to MAX_HISTORIES. A service port without clients costs only its
 * sampling; its history is freed with its last connection. Sampling pauses while there is no traffic. `engineNow` returns
 * undefined until there is one.
 */
export function startSampler(clock: Clock, engineNow: () => SampledEngine | undefined) {
  /** The service ports that were ever used. */
  let known = new Map<string, Tracked>();
  const total = new History();
  let histories = 0;
  let lastAt = clock.now();
  let ratesOfAll = NO_TRAFFIC;
  let activity: Activity | undefined;

  const note = (tracked: Tracked, rates: Traffic): void => {
    tracked.rates = rates;
    tracked.idle = rates === NO_TRAFFIC && tracked.active === 0 ? tracked.idle + 1 : 0;
    if (tracked.idle >= HISTORY_SAMPLES) tracked.history = undefined;
    else if (tracked.idle === 0 && tracked.history === undefined && histories < MAX_HISTORIES) {
      tracked.history = new History();
      histories += 1;
    }
    tracked.history?.add(rates, tracked.active);
  };
  const sample = function* (): Generator<void> {
    const now = clock.now();
    const seconds = Math.max(now - lastAt, 1) / 1000;
    lastAt = now;
    const engine = engineNow();
    const before = activity;
    // Read before the counters, so that traffic during the sampling counts as new the next time.
    activity = engine?.activity();
    const sum = { ...NO_TRAFFIC };
    let active = 0;
    if (activity && isDeepStrictEqual(before, activity)) {
      for (const tracked of known.values()) note(tracked, NO_TRAFFIC);
      active = activity.active;
    } else {
      const present = new Map<string, Tracked>();
      for (const part of engine ? snapshotParts(engine) : []) {
        for (const { name, counters } of part) {
          const totals = totalsOf(counters);
          const tracked = known.get(name) ?? { ...UNUSED };
          if (!known.has(name) && totals.connections + totals.errors === 0) continue;
          present.set(name, tracked);
          const rates = ratesBetween(tracked.totals, totals, seconds);
          tracked.totals = totals;
          tracked.active = counters.active;
          note(tracked, rates);
          active += counters.active;
          addTraffic(sum, rates);
        }
        yield;
      }
      known = present;
      histories = [...present.values()].filter(({ history }) => history).length;
    }
    ratesOfAll = sum;
    total.add(sum, active);
  };
  const wait = (): Timer => clock.setTimer(SAMPLE_MS, () => proceed(sample()));
  // One part in this turn of the event loop, the others in later ones.
  const proceed = (parts: Generator<void>): void => {
    const isDone = parts.next().done === true;
    timer = isDone ? wait() : clock.setTimer(0, () => proceed(parts));
  };
  let timer = wait();
  return {
    /** All service ports together. */
    get rates(): Traffic {
      return ratesOfAll;
    },
    ratesOf: (name: string): Traffic => known.get(name)?.rates ?? NO_TRAFFIC,
    /** The history of one service port, or of all; undefined for one without traffic. */
    history: (name: string | undefined): HistoryView | undefined =>
      name === undefined ? total.view(null) : known.get(name)?.history?.view(name),
    sparkOf: (name: string): number[] | undefined => known.get(name)?.history?.spark(),
    /** Idempotent. */
    close: (): void => timer.cancel(),
  };
}

interface Tracked {
  totals: Traffic;
  rates: Traffic;
  /** Relays and UDP sessions. */
  active: number;
  history: History | undefined;
  /** Samples in a row without any traffic. */
  idle: number;
}

const UNUSED: Tracked = {
  totals: NO_TRAFFIC,
  rates: NO_TRAFFIC,
  active: 0,
  history: undefined,
  idle: 0,
};

/** Counts between two samples, per second; without any, NO_TRAFFIC itself. A counter that decreased has restarted from 0. */
function ratesBetween(before: Traffic, now: Traffic, seconds: number): Traffic {
  if (TRAFFIC_KEYS.every((key) => before[key] === now[key])) return NO_TRAFFIC;
  const rates = { ...now };
  for (const key of TRAFFIC_KEYS) {
    const counted = now[key] >= before[key] ? now[key] - before[key] : now[key];
    rates[key] = counted / seconds;
  }
  return rates;
}

/** Samples that a history keeps: five minutes. */
export const HISTORY_SAMPLES = 150;
/** Time between two samples. Milliseconds. */
export const SAMPLE_MS = 2000;

const SERIES = ['connections', 'bytesIn', 'bytesOut', 'errors', 'active'] as const;

/** Samples over time, oldest first; rates are per second. */
export type HistoryView = ReturnType<History['view']>;

/** The last samples of some numbers, in memory of a fixed size: 3,000 bytes. */
export class History {
  /** One sample after another, the newest at the end. */
  readonly #values = new Float32Array(HISTORY_SAMPLES * SERIES.length);
  #filled = 0;

  add(rates: Traffic, active: number): void {
    const sample = { ...rates, active };
    this.#values.copyWithin(0, SERIES.length);
    this.#values.set(
      SERIES.map((name) => sample[name]),
      this.#values.length - SERIES.length,
    );
    this.#filled = Math.min(this.#filled + 1, HISTORY_SAMPLES);
  }

  view(service: string | null) {
    // Rounded to the resolution of the plot, for a short page.
    const rounded = (value: number): number =>
      value >= 100 ? Math.round(value) : Math.round(value * 10) / 10;
    const series = SERIES.map((name) => [name, this.#series(name).map(rounded)]);
    const named = Object.fromEntries(series) as Record<(typeof SERIES)[number], number[]>;
    return { service, intervalSeconds: SAMPLE_MS / 1000, ...named };
  }

  /** Bytes per second in both directions over the whole time, as the mean of each of SPARK_POINTS parts. */
  spark(): number[] {
    const part = HISTORY_SAMPLES / SPARK_POINTS;
    const sums = Array.from({ length: SPARK_POINTS }, () => 0);
    const bytesOut = this.#series('bytesOut');
    for (const [index, bytesIn] of this.#series('bytesIn').entries()) {
      const point = Math.floor((HISTORY_SAMPLES - this.#filled + index) / part);
      sums[point] = (sums[point] ?? 0) + (bytesIn + (bytesOut[index] ?? 0)) / part;
    }
    return sums.map(Math.round);
  }

  #series(name: (typeof SERIES)[number]): number[] {
    const at = SERIES.indexOf(name);
    const values = this.#values.filter((_, index) => index % SERIES.length === at);
    return [...values.subarray(HISTORY_SAMPLES - this.#filled)];
  }
}
