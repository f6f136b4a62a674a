import { Counter, Gauge, Histogram, type Registry } from 'prom-client';
import type { Subscriptions, TypedChannel } from '../util/channel.ts';

type Labels = Readonly<Record<string, string>>;

export type Sample = readonly [value: number, labels?: Labels];

export interface MetricSource {
  readonly labels: readonly string[];
  /** Events: each adds to a counter, sets a gauge, or is observed by a histogram. */
  readonly subscribe?: (subscriptions: Subscriptions, take: (sample: Sample) => void) => void;
  /** A snapshot for each scrape of a gauge, in which equal labels add up. */
  readonly read?: () => Iterable<Sample> | Promise<Iterable<Sample>>;
}

/** One row of a table of metrics, by name. */
export interface Metric {
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  readonly sources: readonly MetricSource[];
  /** Upper bounds of a histogram, in the unit of the metric. */
  readonly buckets?: number[];
  /** Whether events add to a gauge. */
  readonly adds?: boolean;
}

export type MetricTable = Readonly<Record<string, Metric>>;

function row(type: Metric['type'], more: Pick<Metric, 'buckets' | 'adds'> = {}) {
  return (help: string, ...sources: MetricSource[]): Metric => ({ type, help, sources, ...more });
}

export const counter = row('counter');
export const gauge = row('gauge');
/** A gauge that events raise and lower. */
export const level = row('gauge', { adds: true });
export const histogram = (buckets: number[]) => row('histogram', { buckets });

/** A field of an event that is a label of the same name, `field:label` for another one; `error` and `problem` give their
 * `code`. */
type LabelField<Event> = (keyof Event & string) | `${keyof Event & string}:${string}`;

/** A value for each event, or none. */
export function on<Event extends object>(
  channel: TypedChannel<Event>,
  value: number | ((event: Event) => number | undefined | void) = 1,
  ...fields: LabelField<Event>[]
): MetricSource {
  const pairs = fields
    .map((field) => field.split(':'))
    .map(([name = '', label = name]) => {
      return [name as keyof Event, HAVE_CODE.has(label) ? 'code' : label] as const;
    });
  const textOf = (found: unknown): string => String((found as { code?: string }).code ?? found);
  return each(
    channel,
    pairs.map(([, label]) => label),
    (event) => {
      const found = typeof value === 'number' ? value : value(event);
      if (typeof found !== 'number') return [];
      return [
        [found, Object.fromEntries(pairs.map(([name, label]) => [label, textOf(event[name])]))],
      ];
    },
  );
}

const HAVE_CODE: ReadonlySet<string> = new Set(['error', 'problem']);

/** Several values for each event. */
export function each<Event extends object>(
  channel: TypedChannel<Event>,
  labels: readonly string[],
  samples: (event: Event) => Iterable<Sample>,
): MetricSource {
  return {
    labels,
    subscribe(subscriptions, take) {
      subscriptions.on(channel, (event) => {
        for (const sample of samples(event)) take(sample);
      });
    },
  };
}

/** Shown as 0 from the start, for each of these values of a label. */
export function zero(label: string, values: readonly string[]): MetricSource {
  return {
    labels: [label],
    subscribe: (_, take) => values.forEach((value) => take([0, { [label]: value }])),
  };
}

export function snapshot(
  labels: readonly string[],
  read: NonNullable<MetricSource['read']>,
): MetricSource {
  return { labels, read };
}

/** Recorded by name, see `register`. */
export function recorded(...labels: string[]): MetricSource {
  return { labels };
}

export function labelsOf({ sources }: Metric): string[] {
  return [...new Set(sources.flatMap(({ labels }) => labels))];
}

/** Registers the metrics of a table. Returns the function that records a value of one of them. */
export function register<const Table extends MetricTable>(
  registry: Registry,
  subscriptions: Subscriptions,
  table: Table,
): (name: keyof Table & string, ...sample: Sample) => void {
  const takers = new Map<string, (sample: Sample) => void>();
  for (const [name, metric] of Object.entries(table)) {
    const take = create(registry, name, metric);
    takers.set(name, take);
    for (const { subscribe } of metric.sources) subscribe?.(subscriptions, take);
  }
  return (name, ...sample) => takers.get(name)?.(sample);
}

function create(registry: Registry, name: string, metric: Metric): (sample: Sample) => void {
  const { type, help, buckets = [], adds, sources } = metric;
  const options = { name, help, labelNames: labelsOf(metric), registers: [registry] };
  if (type === 'histogram') {
    const made = new Histogram({ ...options, buckets });
    return ([value]) => made.observe(value);
  }
  if (type === 'counter') {
    const made = new Counter(options);
    return ([value, labels = {}]) => made.inc(labels, value);
  }
  const reads = sources.flatMap(({ read }) => read ?? []);
  const made = new Gauge({
    ...options,
    async collect() {
      if (reads.length === 0) return;
      const samples: Sample[] = [];
      for (const read of reads) samples.push(...(await read()));
      // All at once, as another scrape may be waiting for its samples.
      this.reset();
      for (const [value, labels = {}] of samples) this.inc(labels, value);
    },
  });
  return ([value, labels = {}]) => made[adds === true ? 'inc' : 'set'](labels, value);
}
