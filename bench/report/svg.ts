/** Small charts as SVG. Text takes the colour of the reader's theme; the rest is readable on both. */

/** Colours that stand out on white and on black, and for most who do not see all of them. */
const COLOURS = ['#8a8f98', '#3b82d6', '#e0731d', '#8a63d2', '#2c9c69', '#c8508f', '#b08a1a'];
const WIDTH = 760;

const STYLE = `<style>
text { font: 12px system-ui, sans-serif; fill: #24292f; }
.small { font-size: 11px; }
.right { text-anchor: end; }
.middle { text-anchor: middle; }
.rule { stroke: #8a8f98; stroke-opacity: .35; }
.mark { stroke: #8a8f98; stroke-dasharray: 4 3; }
@media (prefers-color-scheme: dark) { text { fill: #d7dde4; } }
</style>`;

/** What a colour stands for; the same number has the same colour in every chart. */
interface Series {
  readonly name: string;
  readonly colour: number;
}

export interface Bars {
  readonly title: string;
  /** The bars of each group. */
  readonly series: readonly Series[];
  readonly groups: readonly {
    readonly label: string;
    /** One for each series; undefined: no bar. */
    readonly values: readonly (number | undefined)[];
  }[];
  /** Longer bars are cut off here, and say how long they are. */
  readonly max: number;
  /** A line at this value. */
  readonly mark?: number;
}

const BAR = 11;
const GAP = 14;
const LABELS = 280;

/** Groups of horizontal bars. */
export function barChart({ title, series, groups, max, mark }: Bars): string {
  const top = 60;
  const span = WIDTH - LABELS - 60;
  const x = (value: number): number => LABELS + (Math.min(value, max) / max) * span;
  const parts: string[] = [];
  let y = top;
  for (const { label, values } of groups) {
    const shown = values.flatMap((value, index) => (value === undefined ? [] : [{ value, index }]));
    if (shown.length === 0) continue;
    const middle = y + (shown.length * BAR) / 2 + 4;
    parts.push(text(LABELS - 10, middle, label, 'right'));
    for (const { value, index } of shown) {
      const width = round(x(value) - LABELS);
      parts.push(
        `<rect x="${LABELS}" y="${y}" width="${width}" height="${BAR - 2}" fill="${colour(series[index])}"/>`,
        text(LABELS + width + 5, y + BAR - 2, value.toFixed(2), 'small'),
      );
      y += BAR;
    }
    y += GAP;
  }
  const rule =
    mark === undefined
      ? []
      : [`<path class="mark" d="M${round(x(mark))} ${top - 6}V${y - GAP + 4}"/>`];
  return frame(y, title, [...legend(series, 40), ...rule, ...parts]);
}

export interface Lines {
  readonly title: string;
  /** Names of the points, left to right. */
  readonly points: readonly string[];
  /** Positive values; the axis is logarithmic. */
  readonly lines: readonly (Series & { readonly values: readonly number[] })[];
  readonly unit: string;
}

/** Lines over a few named points. */
export function lineChart({ title, points, lines, unit }: Lines): string {
  const [left, top, height] = [85, 64, 200];
  const values = lines.flatMap((line) => line.values).filter((value) => value > 0);
  const [low, high] = [decade(Math.min(...values)), decade(Math.max(...values)) + 1];
  const x = (index: number): number =>
    left + ((WIDTH - left - 60) * index) / Math.max(1, points.length - 1);
  const y = (value: number): number =>
    top + height * (1 - (Math.log10(Math.max(value, 10 ** low)) - low) / (high - low));
  const rules = Array.from({ length: high - low + 1 }, (_, index) => 10 ** (low + index)).flatMap(
    (value) => [
      `<path class="rule" d="M${left} ${round(y(value))}H${WIDTH - 40}"/>`,
      text(left - 6, y(value) + 4, `${value.toLocaleString('en')} ${unit}`, 'small right'),
    ],
  );
  const names = points.map((name, index) => text(x(index), top + height + 18, name, 'middle'));
  const curves = lines.flatMap(({ values: each, ...series }) => [
    `<path fill="none" stroke="${colour(series)}" stroke-width="2" d="M${each
      .map((value, point) => `${round(x(point))} ${round(y(value))}`)
      .join('L')}"/>`,
    ...each.map(
      (value, point) =>
        `<circle cx="${round(x(point))}" cy="${round(y(value))}" r="3" fill="${colour(series)}"/>`,
    ),
  ]);
  return frame(top + height + 30, title, [...legend(lines, 40), ...rules, ...names, ...curves]);
}

function decade(value: number): number {
  return Math.floor(Math.log10(value));
}

function frame(height: number, title: string, parts: readonly string[]): string {
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${round(height)}" role="img">`,
    `<title>${escape(title)}</title>`,
    STYLE,
    text(10, 20, title, '', 'font-weight="600"'),
    ...parts,
    '</svg>\n',
  ].join('\n');
}

function legend(series: readonly Series[], y: number): string[] {
  let x = 10;
  return series.flatMap((each) => {
    const at = x;
    x += 28 + each.name.length * 6.6;
    return [
      `<rect x="${round(at)}" y="${y - 9}" width="10" height="10" fill="${colour(each)}"/>`,
      text(at + 15, y, each.name),
    ];
  });
}

function text(x: number, y: number, words: string, classes = '', more = ''): string {
  const attributes = [classes === '' ? '' : ` class="${classes}"`, more === '' ? '' : ` ${more}`];
  return `<text x="${round(x)}" y="${round(y)}"${attributes.join('')}>${escape(words)}</text>`;
}

function colour(series: Series | undefined): string {
  return COLOURS[(series?.colour ?? 0) % COLOURS.length] ?? '';
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}

function escape(words: string): string {
  return words.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}
