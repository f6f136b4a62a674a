import type { MetricValueWithName, Registry } from 'prom-client';
import type { Metric } from './metric-table.ts';

/**
 * Writes metrics in Prometheus' text format, or OpenMetrics, directly from a list of items.
 *
 * prom-client keeps one object per label set, hashes the labels on every change and renders everything in one go.
 * With ten thousand service ports that stops the event loop for seconds and doubles the memory. Here nothing is kept
 * between scrapes, and the text is generated in pieces.
 */

export type TextFormat = 'prometheus' | 'openmetrics';

/** A metric and what writes the lines of one item, which may be none. */
export interface Family<Item> extends Pick<Metric, 'type' | 'name' | 'help'> {
  readonly write: (item: Item, out: WriteSample) => void;
}

/** The metrics of a table with their writers, by the same names. */
export function familiesOf<Item, Name extends string>(
  metrics: Readonly<Record<Name, Metric>>,
  writers: Readonly<Record<NoInfer<Name>, Family<Item>['write']>>,
): Family<Item>[] {
  const names = Object.keys(metrics) as Name[];
  return names.map((name) => Object.assign({ write: writers[name] }, metrics[name]));
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
  families: readonly Family<Item>[],
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
  for (const { name, type, help, write } of families) {
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
function openCounter(name: string, others: readonly { readonly name: string }[]) {
  const family = name.replace(/_total$/, '');
  const isTaken = others.some((other) => other.name === family);
  return isTaken ? ([name, 'unknown'] as const) : ([family, 'counter'] as const);
}

/** The metrics of a registry, as families of a single item. Its own text as OpenMetrics would rename its counters. */
export async function familiesIn(registry: Registry): Promise<Family<object>[]> {
  const metrics = await registry.getMetricsAsJSON();
  return metrics.map(({ name, help, type, values }) => {
    const write: Family<object>['write'] = (_, out) => {
      for (const { metricName = name, labels, value } of values as MetricValueWithName<string>[]) {
        const pairs = Object.entries(labels).map(([key, text]) => label(key, String(text)));
        out(value, pairs.join(), metricName.slice(name.length));
      }
    };
    return { name, type: type as unknown as Metric['type'], help, write };
  });
}

/** Prometheus has its own spelling of infinities and NaN. */
function number(value: number): string {
  return String(value).replace(/^(-?)Infinity$/, (_, sign: string) => `${sign || '+'}Inf`);
}

/** Renders one label; the value may contain any characters. */
export function label(name: string, value: string): string {
  if (!/["\\\n]/.test(value)) return `${name}="${value}"`;
  const escaped = value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');
  return `${name}="${escaped}"`;
}
