import type { MetricValueWithName, Registry } from 'prom-client';

/**
 * Writes metrics in Prometheus' text format, or OpenMetrics, directly from a list of items.
 *
 * prom-client keeps one object per label set, hashes the labels on every change and renders everything in one go.
 * With ten thousand service ports that stops the event loop for seconds and doubles the memory. Here nothing is kept
 * between scrapes, and the text is generated in pieces.
 */

export type TextFormat = 'prometheus' | 'openmetrics';

export type Families<Item> = Readonly<Record<string, Family<Item>>>;

export interface Family<Item> {
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  /** Writes the lines of one item; may write none. */
  readonly write: (item: Item, out: WriteSample) => void;
}

/**
 * Writes one line about the item: its value, further labels as `label` renders them, a suffix of the family's name as in
 * `_bucket`, and an exemplar without the `#`, which only OpenMetrics has.
 */
export type WriteSample = (
  value: number,
  labels?: string,
  suffix?: string,
  exemplar?: string,
) => void;

/** Approximate size of a piece of text. Characters. */
const PIECE = 32 * 1024;

/**
 * The families of all items, in pieces. The caller may do other work between pieces; items are read when their family
 * is written.
 */
export function* exposition<Item>(
  families: Families<Item>,
  items: readonly Item[],
  labelsOf: (item: Item) => string,
  format: TextFormat = 'prometheus',
): Generator<string, void, void> {
  const isOpen = format === 'openmetrics';
  const labels: string[] = [];
  let text = '';
  for (const [index, item] of items.entries()) {
    labels.push(labelsOf(item));
    // An empty piece: a point at which to yield.
    if (index % 1000 === 999) yield '';
  }
  for (const [name, { type, help, write }] of Object.entries(families)) {
    const [family, kind] =
      isOpen && type === 'counter' ? openCounter(name, families) : [name, type];
    text += `# HELP ${family} ${help}\n# TYPE ${family} ${kind}\n`;
    let ofItem = '';
    const out: WriteSample = (value, more = '', suffix = '', exemplar = '') => {
      const own = isOpen && suffix === '_bucket' ? more.replace(WHOLE_BOUND, '$&.0') : more;
      const all = ofItem === '' || own === '' ? ofItem + own : `${ofItem},${own}`;
      const end = isOpen && exemplar !== '' ? ` # ${exemplar}` : '';
      text += `${name}${suffix}${all === '' ? '' : `{${all}}`} ${number(value)}${end}\n`;
    };
    for (const [index, item] of items.entries()) {
      ofItem = labels[index] ?? '';
      write(item, out);
      if (text.length > PIECE) {
        yield text;
        text = '';
      } else if (index % 1000 === 999) {
        yield '';
      }
    }
  }
  if (text !== '') yield text;
}

const WHOLE_BOUND = /(?<=le=")\d+(?=")/;

/** The family of a counter has no suffix; where a gauge has that name, the counter keeps its own, untyped. */
function openCounter(name: string, others: object): [family: string, type: string] {
  const family = name.replace(/_total$/, '');
  return Object.hasOwn(others, family) ? [name, 'unknown'] : [family, 'counter'];
}

/** The metrics of a registry, as families of a single item. Its own text as OpenMetrics would rename its counters. */
export async function familiesIn(registry: Registry): Promise<Families<object>> {
  const metrics = (await registry.getMetricsAsJSON()).map(({ name, help, type, values }) => {
    const write: Family<object>['write'] = (_, out) => {
      for (const { metricName = name, labels, value } of values as MetricValueWithName<string>[]) {
        const pairs = Object.entries(labels).map(([key, text]) => label(key, String(text)));
        out(value, pairs.join(), metricName.slice(name.length));
      }
    };
    return [name, { type: type as unknown as Family<object>['type'], help, write }];
  });
  return Object.fromEntries(metrics) as Families<object>;
}

/** Prometheus has its own spelling of infinities and NaN. */
function number(value: number): string {
  if (Number.isFinite(value)) return String(value);
  if (Number.isNaN(value)) return 'NaN';
  return value > 0 ? '+Inf' : '-Inf';
}

/** Renders one label; the value may contain any characters. */
export function label(name: string, value: string): string {
  if (!/["\\\n]/.test(value)) return `${name}="${value}"`;
  const escaped = value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');
  return `${name}="${escaped}"`;
}
