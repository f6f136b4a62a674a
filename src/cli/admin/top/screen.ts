/** What `top` draws: pure, the same data, state and size make the same lines. */
import type { EndpointState, EndpointView, ServiceDetails } from '../../../admin/details.ts';
import type { ServiceRow } from '../../../admin/services.ts';
import type { ServiceState } from '../../../observe/service-state.ts';
import { type HealthState, type Reason, unreachable } from '../../../observe/verdict.ts';
import { drainText } from '../../../proxier/drains.ts';
import { escapeControls } from '../../../util/terminal-text.ts';
import { age, bytes, count, pad } from '../layout.ts';
import { connectText, lastErrorText } from '../tables.ts';
import { SORT_KEY_OF, type TopData, type TopState } from './state.ts';

/** Terminal codes: its own sixteen colours, which fit its background. */
const CODES = {
  plain: '',
  dim: '2',
  bold: '1',
  good: '32',
  warn: '33',
  bad: '1;31',
  violet: '35',
  blue: '36',
  head: '7',
  selected: '1;4',
} as const;

/** How a piece of text looks. */
export type Style = keyof typeof CODES;

/** A piece of a line. */
interface Piece {
  readonly text: string;
  readonly style: Style;
}

export type Line = readonly Piece[];

/** Escapes control characters: names must not control the terminal. */
export function piece(text: string, style: Style = 'plain'): Piece {
  return { text: escapeControls(text), style };
}

/** Dim text with bold values; a piece keeps its style. */
function dim(
  texts: TemplateStringsArray,
  ...values: readonly (string | number | Piece)[]
): Piece[] {
  return texts.flatMap((text, index) => {
    const value = values[index] ?? '';
    return [piece(text, 'dim'), typeof value === 'object' ? value : piece(String(value), 'bold')];
  });
}

export function plainLine(line: Line): string {
  const texts = line.map(({ text }) => text);
  return texts.join('').trimEnd();
}

/** The line for a terminal, cut to its width. */
export function ansiLine(line: Line, width: number): string {
  const texts = cut(line, width).map(({ text, style }) =>
    style === 'plain' ? text : `\u001b[${CODES[style]}m${text}\u001b[0m`,
  );
  return texts.join('');
}

/** No longer than `width` characters. */
export function cut(line: Line, width: number): Piece[] {
  let left = width;
  return line.flatMap(({ text, style }) => {
    const part = text.slice(0, left);
    left -= part.length;
    return part === '' ? [] : [{ text: part, style }];
  });
}

const STATE_STYLES: Readonly<Record<ServiceState | EndpointState | HealthState, Style>> = {
  ok: 'good',
  ready: 'good',
  degraded: 'warn',
  'no-endpoints': 'warn',
  failing: 'warn',
  down: 'bad',
  drained: 'violet',
  removed: 'dim',
  unused: 'dim',
};

interface Column {
  readonly title: string;
  readonly width: number;
  /** Minimum number of terminal columns to show it. */
  readonly from?: number;
  /** Default: right. */
  readonly align?: 'left';
  /** The key that sorts by it. */
  readonly key?: string;
  readonly cell: (row: ServiceRow) => string;
  /** Absent or undefined: plain, and dim for zero. */
  readonly style?: (row: ServiceRow) => Style | undefined;
}

const STATE_COLUMN: Column = {
  title: 'STATE',
  width: 9,
  align: 'left',
  key: 's',
  cell: ({ state }) => (state === 'no-endpoints' ? 'no-endpts' : state),
  style: ({ state }) => STATE_STYLES[state],
};

const ENDPOINTS_COLUMN: Column = {
  title: 'ENDPTS',
  width: 6,
  key: 'p',
  cell: ({ endpoints: { usable, total } }) =>
    usable === total ? String(total) : `${usable}/${total}`,
  style: ({ endpoints: { usable, total } }) => (usable < total ? 'warn' : undefined),
};

const ADDRESS = { title: 'ADDRESS', width: 22, align: 'left', from: 140 } as const;
const HISTORY = { title: '5 MINUTES', width: 15, align: 'left', from: 118 } as const;

const COLUMNS: readonly Column[] = [
  STATE_COLUMN,
  { ...ADDRESS, cell: ({ addresses: [first = '-'] }) => first, style: () => 'dim' },
  ENDPOINTS_COLUMN,
  { title: 'ACTIVE', width: 6, key: 'c', cell: ({ active }) => count(active) },
  { title: 'CONN/S', width: 6, key: 'r', cell: ({ rates }) => count(rates.connections) },
  { title: 'IN/S', width: 7, key: 'i', cell: ({ rates }) => bytes(rates.bytesIn) },
  { title: 'OUT/S', width: 7, key: 'o', cell: ({ rates }) => bytes(rates.bytesOut) },
  {
    title: 'ERRORS',
    width: 6,
    key: 'e',
    cell: ({ totals }) => count(totals.errors),
    style: ({ rates }) => (rates.errors > 0 ? 'bad' : undefined),
  },
  { ...HISTORY, cell: ({ spark = [] }) => bars(spark), style: () => 'blue' },
];

const BARS = '▁▂▃▄▅▆▇█';

/** A plot with half as many characters as numbers. */
export function bars(values: readonly number[]): string {
  const top = Math.max(...values, 1);
  return Array.from({ length: Math.floor(values.length / 2) }, (_, index) => {
    const value = ((values[2 * index] ?? 0) + (values[2 * index + 1] ?? 0)) / 2;
    return value === 0 ? ' ' : BARS[Math.ceil((value / top) * (BARS.length - 1))];
  }).join('');
}

/** Whole if it fits; otherwise its beginning and end, since names differ in both. */
function elided(name: string, width: number): string {
  if (name.length <= width) return name;
  const begin = Math.ceil((width - 1) / 2);
  return `${name.slice(0, begin)}…${name.slice(name.length - (width - 1 - begin))}`;
}

interface Size {
  readonly columns: number;
  readonly rows: number;
}

/** Lines above and below the rows. */
const AROUND = 5;

/** Rows of service ports that fit on a screen. */
export function roomFor({ rows }: Size): number {
  return Math.max(rows - AROUND, 1);
}

/** A screen, no higher than the terminal. */
export function drawTop(data: TopData, state: TopState, size: Size, error?: string): Line[] {
  const body = state.help ? HELP : rowLines(data, state, size);
  const room = roomFor(size);
  const health = error === undefined ? data.status.health : unreachable(error);
  return [
    titleLine(data, state.paused, size.columns, health.state),
    totalsLine(data),
    noticeLine(data, health.reasons),
    headLine(state, size),
    ...body.slice(0, room),
    ...Array.from({ length: Math.max(room - body.length, 0) }, (): Line => []),
    footLine(data, state),
  ].slice(0, size.rows);
}

function titleLine(data: TopData, paused: boolean, columns: number, state: HealthState): Line {
  const { process: about, proxy } = data.status;
  const text = [
    about.nodeName ?? '',
    about.command,
    proxy === null ? '' : `engine ${proxy.engine}, portal ${proxy.portal}`,
    `up ${age(about.uptimeSeconds)}`,
    bytes(about.rssBytes),
  ].filter((part) => part !== '');
  const shown = [piece('kpng-userspace ', 'bold'), piece(state, STATE_STYLES[state])];
  const line = [...shown, piece(`  ${text.join(' · ')}`, 'dim')];
  const gap = Math.max(columns - plainLine(line).length - 6, 2);
  return paused ? [...line, piece(' '.repeat(gap)), piece('paused', 'warn')] : line;
}

function totalsLine({ status: { proxy } }: TopData): Line {
  if (proxy === null) return dim`This process does not proxy.`;
  const { active, rates, states } = proxy;
  const notOk = (['down', 'degraded', 'no-endpoints', 'drained', 'removed'] as const).filter(
    (state) => states[state] > 0,
  );
  const [opened, errors] = [`${count(rates.connections)}/s`, `${count(rates.errors)}/s`];
  return [
    ...dim`active ${active.tcp} TCP ${active.udp} UDP `,
    ...(active.held > 0 ? dim`${active.held} held ` : []),
    ...dim`  new ${opened}   in ${`${bytes(rates.bytesIn)}/s`}   out ${`${bytes(rates.bytesOut)}/s`}`,
    ...dim`   errors ${piece(errors, rates.errors > 0 ? 'bad' : 'bold')}`,
    ...dim`   service ports ${proxy.servicePorts}`,
    ...notOk.flatMap((state) => dim`, ${piece(`${states[state]} ${state}`, STATE_STYLES[state])}`),
  ];
}

/** The worst problem; problems are more specific than the reasons that count them. */
function noticeLine({ status: { proxy } }: TopData, reasons: readonly Reason[]): Line {
  const is = (wanted: Reason['state']) => reasons.filter(({ state }) => state === wanted);
  const down = is('down');
  const [worst, ...more] = [...down, ...(proxy?.problems ?? []), ...is('degraded')];
  if (worst !== undefined) {
    const others = more.length === 0 ? '' : ` (and ${more.length} more: status)`;
    return [piece(`${worst.message}${others}`, down.length > 0 ? 'bad' : 'warn')];
  }
  const [drain, ...drains] = proxy?.drains ?? [];
  if (drain === undefined) return [];
  const others = drains.length === 0 ? '' : ` and ${drains.length} more`;
  return [piece(`drained: ${drainText(drain)}${others}`, 'violet')];
}

/** The columns that fit beside the names, and the width of the names. */
function layoutFor(size: Size) {
  const columns = COLUMNS.filter(({ from = 0 }) => size.columns >= from);
  const others = columns.reduce((sum, { width }) => sum + width + 1, 0);
  return { columns, nameWidth: Math.max(size.columns - others, 16) };
}

function headLine({ sort, reverse }: TopState, size: Size): Line {
  const { columns, nameWidth } = layoutFor(size);
  const name = { title: 'SERVICE', key: 'n', width: nameWidth, align: 'left' } as const;
  const titles = [name, ...columns].map(({ title, key = '', width, align }) => {
    const mark = SORT_KEY_OF[key] === sort ? (reverse ? '▲' : '▼') : '';
    return pad(mark + title, width, align);
  });
  return [piece(titles.join(' '), 'head')];
}

function rowLines({ services, details }: TopData, state: TopState, size: Size): Line[] {
  if (services.rows.length === 0) return [dim`No matching service port.`];
  const room = roomFor(size);
  const below = details === undefined ? [] : endpointLines(details);
  // Keep the selected row visible, with some of its open details.
  const above = Math.max(room - 1 - Math.min(below.length, room - 1), 0);
  const first = Math.max(0, state.selected - above);
  return services.rows.slice(first, first + room).flatMap((row, index) => {
    const isOpen = row.name === state.open && details?.name === row.name;
    return [rowLine(row, first + index === state.selected, size)].concat(isOpen ? below : []);
  });
}

function rowLine(row: ServiceRow, selected: boolean, size: Size): Line {
  const { columns, nameWidth } = layoutFor(size);
  const suffix = row.protocol === 'UDP' ? ' UDP' : '';
  const shown = elided(escapeControls(row.name) + suffix, nameWidth);
  return [
    piece(shown, selected ? 'selected' : 'bold'),
    piece(' '.repeat(nameWidth - shown.length)),
    ...columns.map(({ width, align, cell, style }) => {
      const text = cell(row);
      const usual = /^0( B)?$/.test(text) ? 'dim' : 'plain';
      return piece(` ${pad(text, width, align).slice(0, width)}`, style?.(row) ?? usual);
    }),
  ];
}

function endpointLines({ endpointsList }: ServiceDetails): Line[] {
  if (endpointsList.length === 0) return [dim`    no endpoints`];
  const width = Math.max(...endpointsList.map(({ address }) => address.length));
  return endpointsList.map(({ address, state, ...figures }) => [
    piece(`    ${address.padEnd(width)}  `),
    piece(state.padEnd(8), STATE_STYLES[state]),
    piece(figuresText(figures), 'dim'),
  ]);
}

function figuresText(figures: Partial<EndpointView>): string {
  const { active, connections = 0, errors = 0, bytesIn = 0, bytesOut = 0 } = figures;
  if (active === undefined) return '';
  const error = lastErrorText(figures);
  const right = (value: number, width: number): string => pad(count(value), width);
  return (
    `${right(active, 6)} active ${right(connections, 5)} total ${right(errors, 5)} errors ` +
    `${pad(connectText(figures), 7)}  ` +
    (error === '' ? `${bytes(bytesIn)} in, ${bytes(bytesOut)} out` : error)
  );
}

function footLine({ services: { matched, total } }: TopData, state: TopState): Line {
  if (state.typing) return [piece('search: ', 'bold'), piece(`${state.search}▏`)];
  const found = matched === total ? `${total}` : `${matched} of ${total}`;
  const search = state.search === '' ? '' : `   search “${state.search}” (Esc)`;
  const filter = state.state === 'all' ? '' : `   only ${state.state}`;
  const keys = 'q quit  ? help  / search  f filter  Enter endpoints';
  return [piece(`${keys}   ${found}${search}${filter}`, 'dim')];
}

const HELP: readonly Line[] = [
  [],
  ...[
    ['n s p c r i o e', 'sort by name, state, endpoints, active, new connections, in, out, errors'],
    ['R', 'reverse the order'],
    ['f', 'all, in use, not ok, drained'],
    ['/', 'search names and addresses; Esc ends it'],
    ['↑ ↓ j k PgUp PgDn', 'select a service port'],
    ['Enter', 'show its endpoints'],
    ['Space', 'pause, resume'],
    ['q, Ctrl-C', 'quit'],
  ].map(([keys = '', what = '']) => [piece(`  ${keys.padEnd(20)}`, 'bold'), piece(what)]),
];
