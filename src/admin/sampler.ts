import { type Activity, isSameActivity } from '../proxysocket/counters.ts';
import type { ServicePortSnapshot } from '../proxysocket/engine.ts';
import { snapshotParts, type SnapshotSource } from '../observe/parts.ts';
import {
  addTraffic,
  NO_TRAFFIC,
  totalsOf,
  TRAFFIC_KEYS,
  type Traffic,
  type TrafficSum,
} from '../observe/service-summary.ts';
import type { Clock, Timer } from '../util/clock.ts';

/** Maximum number of service ports with a history of their own: 3 MB. */
export const MAX_HISTORIES = 1000;
const SPARK_POINTS = 30;

/** The record of a service port that was ever used. */
class Tracked {
  totals = NO_TRAFFIC;
  rates = NO_TRAFFIC;
  /** Relays and UDP sessions. */
  active = 0;
  history: History | undefined;
  /** Samples in a row without any traffic. */
  idle = 0;
  /** The round in which it was last seen. */
  seen = 0;
}

export interface SamplerOptions extends SnapshotSource {
  /** Whether any traffic has flowed since the last call; absent or undefined: only the counters show it. */
  readonly activity?: () => Activity | undefined;
  readonly clock: Clock;
}

/**
 * Samples the counters every other second, for rates and a history of the last five minutes: of all service ports
 * together, and of each that has traffic, up to MAX_HISTORIES. A service port without clients costs only its
 * sampling; its history is freed with its last connection. Sampling pauses while there is no traffic.
 */
export class Sampler {
  readonly #options: SamplerOptions;
  readonly #tracked = new Map<string, Tracked>();
  readonly #total = new History();
  #histories = 0;
  #round = 0;
  #lastAt: number;
  #rates = NO_TRAFFIC;
  #activity: Activity | undefined;
  #timer: Timer | undefined;

  constructor(options: SamplerOptions) {
    this.#options = options;
    this.#lastAt = options.clock.now();
    this.#arm();
  }

  /** All service ports together. */
  get rates(): Traffic {
    return this.#rates;
  }

  ratesOf(name: string): Traffic {
    return this.#tracked.get(name)?.rates ?? NO_TRAFFIC;
  }

  /** The history of one service port, or of all; undefined for one without traffic. */
  history(name: string | undefined): HistoryView | undefined {
    return name === undefined
      ? this.#total.view(null)
      : this.#tracked.get(name)?.history?.view(name);
  }

  sparkOf(name: string): number[] | undefined {
    return this.#tracked.get(name)?.history?.spark(SPARK_POINTS);
  }

  /** Idempotent. */
  close(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #arm(): void {
    this.#timer = this.#options.clock.setTimer(SAMPLE_MS, () => this.#begin());
  }

  #begin(): void {
    const now = this.#options.clock.now();
    const seconds = Math.max(now - this.#lastAt, 1) / 1000;
    this.#lastAt = now;
    const before = this.#activity;
    // Read before the counters, so that traffic during the sampling counts as new the next time.
    this.#activity = this.#options.activity?.();
    if (before && this.#activity && isSameActivity(before, this.#activity)) {
      for (const tracked of this.#tracked.values()) this.#note(tracked, NO_TRAFFIC);
      this.#finish(NO_TRAFFIC, this.#activity.active);
      return;
    }
    this.#round += 1;
    const sum = { ...NO_TRAFFIC, active: 0 };
    this.#sampleParts(snapshotParts(this.#options), seconds, sum);
  }

  /** One part in this turn of the event loop, the others in later ones. */
  #sampleParts(
    parts: Iterator<readonly ServicePortSnapshot[], void>,
    seconds: number,
    sum: TrafficSum & { active: number },
  ): void {
    const part = parts.next();
    if (part.done === true) {
      for (const [name, tracked] of this.#tracked) {
        if (tracked.seen === this.#round) continue;
        this.#dropHistory(tracked);
        this.#tracked.delete(name);
      }
      const { active, ...rates } = sum;
      this.#finish(rates, active);
      return;
    }
    for (const servicePort of part.value) {
      const rates = this.#sampleOne(servicePort, seconds);
      sum.active += servicePort.counters.active;
      if (rates !== NO_TRAFFIC) addTraffic(sum, rates);
    }
    this.#timer = this.#options.clock.setTimer(0, () => this.#sampleParts(parts, seconds, sum));
  }

  #finish(rates: Traffic, active: number): void {
    this.#rates = rates;
    this.#total.add(rates, active);
    this.#arm();
  }

  /** Records one service port; returns its current rates. */
  #sampleOne({ name, counters }: ServicePortSnapshot, seconds: number): Traffic {
    let tracked = this.#tracked.get(name);
    const totals = totalsOf(counters);
    if (tracked === undefined) {
      if (totals.connections === 0 && totals.errors === 0) return NO_TRAFFIC;
      tracked = new Tracked();
      this.#tracked.set(name, tracked);
    }
    tracked.seen = this.#round;
    const rates = ratesBetween(tracked.totals, totals, seconds);
    tracked.totals = totals;
    tracked.active = counters.active;
    this.#note(tracked, rates);
    return rates;
  }

  #note(tracked: Tracked, rates: Traffic): void {
    tracked.rates = rates;
    tracked.idle = rates === NO_TRAFFIC && tracked.active === 0 ? tracked.idle + 1 : 0;
    if (tracked.idle >= HISTORY_SAMPLES) this.#dropHistory(tracked);
    else if (
      tracked.idle === 0 &&
      tracked.history === undefined &&
      this.#histories < MAX_HISTORIES
    ) {
      tracked.history = new History();
      this.#histories += 1;
    }
    tracked.history?.add(rates, tracked.active);
  }

  #dropHistory(tracked: Tracked): void {
    if (tracked.history === undefined) return;
    tracked.history = undefined;
    this.#histories -= 1;
  }
}

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
  readonly #values = new Float32Array(HISTORY_SAMPLES * SERIES.length);
  #next = 0;
  #filled = 0;

  add(rates: Traffic, active: number): void {
    const values = { ...rates, active };
    const at = this.#next * SERIES.length;
    for (const [index, name] of SERIES.entries()) this.#values[at + index] = values[name];
    this.#next = (this.#next + 1) % HISTORY_SAMPLES;
    this.#filled = Math.min(this.#filled + 1, HISTORY_SAMPLES);
  }

  view(service: string | null) {
    const series = SERIES.map((name, index) => [name, this.#series(index)]);
    const named = Object.fromEntries(series) as Record<(typeof SERIES)[number], number[]>;
    return { service, intervalSeconds: SAMPLE_MS / 1000, ...named };
  }

  /** Bytes per second in both directions over the whole time, as the mean of each of `points` parts. */
  spark(points: number): number[] {
    const part = HISTORY_SAMPLES / points;
    const sums = Array.from({ length: points }, () => 0);
    for (let age = 0; age < this.#filled; age += 1) {
      const at = this.#offset(age);
      const bytes = (this.#values[at + 1] ?? 0) + (this.#values[at + 2] ?? 0);
      const point = points - 1 - Math.floor(age / part);
      sums[point] = (sums[point] ?? 0) + bytes / part;
    }
    return sums.map(Math.round);
  }

  /** Rounded to the resolution of the plot, for a short page. */
  #series(index: number): number[] {
    const list: number[] = [];
    for (let age = this.#filled - 1; age >= 0; age -= 1) {
      const value = this.#values[this.#offset(age) + index] ?? 0;
      list.push(value >= 100 ? Math.round(value) : Math.round(value * 10) / 10);
    }
    return list;
  }

  /** Position of the sample of a given age; 0 is the newest. */
  #offset(age: number): number {
    return ((this.#next - 1 - age + 2 * HISTORY_SAMPLES) % HISTORY_SAMPLES) * SERIES.length;
  }
}
