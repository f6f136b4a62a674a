/**
 * Writes metrics in Prometheus' text format directly from a list of items.
 *
 * prom-client keeps one object per label set, hashes the labels on every change and renders everything in one go.
 * With ten thousand service ports that stops the event loop for seconds and doubles the memory. Here nothing is kept
 * between scrapes, and the text is generated in pieces.
 */

export type Families<Item> = Readonly<Record<string, Family<Item>>>;

export interface Family<Item> {
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  /** Writes the lines of one item; may write none. */
  readonly write: (item: Item, out: WriteSample) => void;
}

/**
 * Writes one line about the item: its value, further labels as `label` renders them, each after a comma, a suffix of the
 * family's name as in `_bucket`, and an exemplar of OpenMetrics without the `#`.
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
): Generator<string, void, void> {
  const labels: string[] = [];
  let text = '';
  for (const [index, item] of items.entries()) {
    labels.push(labelsOf(item));
    // An empty piece: a point at which to yield.
    if (index % 1000 === 999) yield '';
  }
  for (const [name, { type, help, write }] of Object.entries(families)) {
    text += `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;
    let ofItem = '';
    const out: WriteSample = (value, more = '', suffix = '', exemplar = '') => {
      const end = exemplar === '' ? '' : ` # ${exemplar}`;
      text += `${name}${suffix}{${ofItem}${more}} ${number(value)}${end}\n`;
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

/** Prometheus has its own spelling of infinities and NaN. */
function number(value: number): string {
  if (Number.isFinite(value)) return String(value);
  if (Number.isNaN(value)) return 'NaN';
  return value > 0 ? '+Inf' : '-Inf';
}

/** Renders one label; the value may contain any characters. */
export function label(name: string, value: string): string {
  return `${name}="${escapeLabel(value)}"`;
}

function escapeLabel(value: string): string {
  if (!/["\\\n]/.test(value)) return value;
  return value.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n');
}
