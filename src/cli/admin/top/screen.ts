/** What `top` draws: pure, the same data, state and size make the same lines. */
import { styleText } from 'node:util';
import type { EndpointState, ServiceDetails } from '../../../admin/details.ts';
import type { ServiceRow } from '../../../admin/services.ts';
import type { ServiceState } from '../../../observe/service-state.ts';
import { type HealthState, type Reason, unreachable } from '../../../observe/verdict.ts';
import { drainText } from '../../../proxier/drains.ts';
import { escapeControls } from '../../../util/terminal-text.ts';
import { age, bytes, type Column, count, table } from '../layout.ts';
import { ENDPOINT_COLUMNS } from '../tables.ts';
import { SORT_KEY_OF, type TopData, type TopState } from './state.ts';

/** The terminal shows its own sixteen colours, which fit its background. */
type Style = Parameters<typeof styleText>[0];

const BAD: Style = ['bold', 'red'];

/** Escapes control characters: names must not control the terminal. */
export function styled(style: Style, text: string): string {
  return styleText(style, escapeControls(text), { validateStream: false });
}

const bold = (text: string): string => styled('bold', text);

/** Dim text with bold numbers; other values have a style. */
function dim(texts: TemplateStringsArray, ...values: readonly (string | number)[]): string {
  const raw = texts.map((text) => styled('dim', text));
  const shown = values.map((value) => (typeof value === 'number' ? bold(`${value}`) : value));
  return String.raw({ raw }, ...shown);
}

/** The beginning of a styled line: no more than `width` characters. */
export function cut(line: string, width: number): string {
  let left = width;
  // oxlint-disable-next-line no-control-regex
  return line.replace(/(\u001b\[\d+m)|[^]/g, (char, code?: string) => {
    if (code === undefined) left -= 1;
    return code ?? (left < 0 ? '' : char);
  });
}

const STATE_STYLES: Readonly<Record<ServiceState | EndpointState | HealthState, Style>> = {
  ok: 'green',
  ready: 'green',
  degraded: 'yellow',
  'no-endpoints': 'yellow',
  failing: 'yellow',
  down: BAD,
  drained: 'magenta',
  removed: 'dim',
  unused: 'dim',
};

interface TopColumn extends Column<ServiceRow> {
  readonly width: number;
  /** Minimum number of terminal columns to show it. */
  readonly from?: number;
  /** The key that sorts by it. */
  readonly key?: string;
}

/** Aligned to the right, and dim if they are zero, unless they say otherwise. */
const COLUMNS: readonly TopColumn[] = [
  {
    title: 'STATE',
    width: 9,
    align: 'left',
    key: 's',
    cell: ({ state }) => (state === 'no-endpoints' ? 'no-endpts' : state),
    style: (text, { state }) => styled(STATE_STYLES[state], text),
  },
  {
    title: 'ADDRESS',
    width: 22,
    align: 'left',
    from: 140,
    cell: ({ addresses: [first = '-'] }) => first,
    style: (text) => styled('dim', text),
  },
  {
    title: 'ENDPTS',
    width: 6,
    key: 'p',
    cell: ({ endpoints: { usable, total } }) => `${usable < total ? `${usable}/` : ''}${total}`,
    style: (text, { endpoints: { usable, total } }) =>
      usable < total ? styled('yellow', text) : faint(text),
  },
  { title: 'ACTIVE', width: 6, key: 'c', cell: ({ active }) => count(active) },
  { title: 'CONN/S', width: 6, key: 'r', cell: ({ rates }) => count(rates.connections) },
  { title: 'IN/S', width: 7, key: 'i', cell: ({ rates }) => bytes(rates.bytesIn) },
  { title: 'OUT/S', width: 7, key: 'o', cell: ({ rates }) => bytes(rates.bytesOut) },
  {
    title: 'ERRORS',
    width: 6,
    key: 'e',
    cell: ({ totals }) => count(totals.errors),
    style: (text, { rates }) => (rates.errors > 0 ? styled(BAD, text) : faint(text)),
  },
  {
    title: '5 MINUTES',
    width: 15,
    align: 'left',
    from: 118,
    cell: ({ spark = [] }) => bars(spark),
    style: (text) => styled('blue', text),
  },
];

/** Zeros are dim. */
function faint(text: string): string {
  return /^0( B)?$/.test(text) ? styled('dim', text) : text;
}

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

/** The styled lines of a screen, no more than the terminal has. */
export function drawTop(data: TopData, state: TopState, size: Size, error?: string): string[] {
  const room = roomFor(size);
  const [head = '', ...rows] = serviceLines(data, state, size);
  const body = state.help ? HELP : rows;
  const health = error === undefined ? data.status.health : unreachable(error);
  return [
    titleLine(data, state.paused, health.state),
    totalsLine(data),
    noticeLine(data, health.reasons),
    head,
    ...body.slice(0, room),
    ...Array.from({ length: Math.max(room - body.length, 0) }, () => ''),
    footLine(data, state),
  ].slice(0, size.rows);
}

function titleLine({ status }: TopData, paused: boolean, state: HealthState): string {
  const { process: about, proxy } = status;
  const text = [
    about.nodeName ?? '',
    about.command,
    proxy === null ? '' : `engine ${proxy.engine}, portal ${proxy.portal}`,
    `up ${age(about.uptimeSeconds)}`,
    bytes(about.rssBytes),
  ].filter((part) => part !== '');
  const shown = bold('kpng-userspace ') + styled(STATE_STYLES[state], state);
  const mode = paused ? styled('yellow', ' paused') : '';
  return shown + mode + styled('dim', `  ${text.join(' · ')}`);
}

function totalsLine({ status: { proxy } }: TopData): string {
  if (proxy === null) return dim`This process does not proxy.`;
  const { active, rates, states } = proxy;
  const notOk = (['down', 'degraded', 'no-endpoints', 'drained', 'removed'] as const).filter(
    (state) => states[state] > 0,
  );
  const errors = styled(rates.errors > 0 ? BAD : 'bold', `${count(rates.errors)}/s`);
  return [
    dim`active ${active.tcp} TCP ${active.udp} UDP `,
    active.held > 0 ? dim`${active.held} held ` : '',
    dim`  new ${bold(`${count(rates.connections)}/s`)}`,
    dim`   in ${bold(`${bytes(rates.bytesIn)}/s`)}   out ${bold(`${bytes(rates.bytesOut)}/s`)}`,
    dim`   errors ${errors}   service ports ${proxy.servicePorts}`,
    ...notOk.map((state) => dim`, ${styled(STATE_STYLES[state], `${states[state]} ${state}`)}`),
  ].join('');
}

/** The worst problem; problems are more specific than the reasons that count them. */
function noticeLine({ status: { proxy } }: TopData, reasons: readonly Reason[]): string {
  const is = (wanted: Reason['state']) => reasons.filter(({ state }) => state === wanted);
  const down = is('down');
  const [worst, ...more] = [...down, ...(proxy?.problems ?? []), ...is('degraded')];
  if (worst !== undefined) {
    const others = more.length === 0 ? '' : ` (and ${more.length} more: status)`;
    return styled(down.length > 0 ? BAD : 'yellow', `${worst.message}${others}`);
  }
  const [drain, ...drains] = proxy?.drains ?? [];
  if (drain === undefined) return '';
  const others = drains.length === 0 ? '' : ` and ${drains.length} more`;
  return styled('magenta', `drained: ${drainText(drain)}${others}`);
}

/** The head of the table, and the rows around the selected one. */
function serviceLines({ services, details }: TopData, state: TopState, size: Size): string[] {
  const { sort, reverse, selected, open } = state;
  const others = COLUMNS.filter(({ from = 0 }) => size.columns >= from);
  const width = Math.max(
    others.reduce((left, column) => left - column.width - 1, size.columns),
    16,
  );
  const name: TopColumn = {
    title: 'SERVICE',
    width,
    align: 'left',
    key: 'n',
    cell: (row) => elided(escapeControls(row.name) + (row.protocol === 'UDP' ? ' UDP' : ''), width),
    style: (text, row) =>
      styled(row === services.rows[selected] ? ['bold', 'underline'] : 'bold', text),
  };
  const columns = [name, ...others].map((column) => {
    const mark = SORT_KEY_OF[column.key ?? ''] === sort ? (reverse ? '▲' : '▼') : '';
    const defaults = { align: 'right', style: faint } as const;
    return Object.assign(defaults, column, { title: mark + column.title });
  });
  const room = roomFor(size);
  const below = details === undefined ? [] : endpointLines(details);
  // Keep the selected row visible, with some of its open details.
  const above = Math.max(room - 1 - Math.min(below.length, room - 1), 0);
  const first = Math.max(0, selected - above);
  const rows = services.rows.slice(first, first + room);
  const [head = '', ...lines] = table(columns, rows, ' ');
  const body = lines.flatMap((line, index) => {
    const isOpen = rows[index]?.name === open && details?.name === open;
    return [line].concat(isOpen ? below : []);
  });
  const none = rows.length === 0 ? [dim`No matching service port.`] : [];
  return [styled('inverse', head.padEnd(size.columns)), ...body, ...none];
}

/** As `services NAME` shows them, without the column that a narrow terminal has no room for. */
function endpointLines({ endpointsList }: ServiceDetails): string[] {
  if (endpointsList.length === 0) return [dim`    no endpoints`];
  const columns = ENDPOINT_COLUMNS.filter(({ title }) => title !== 'TRAFFIC');
  return table(columns, endpointsList).map((line, index) => {
    const endpoint = endpointsList[index - 1];
    return styled(endpoint === undefined ? 'dim' : STATE_STYLES[endpoint.state], `    ${line}`);
  });
}

function footLine({ services: { matched, total } }: TopData, state: TopState): string {
  if (state.typing) return `${bold('search: ')}${escapeControls(state.search)}▏`;
  const found = matched === total ? `${total}` : `${matched} of ${total}`;
  const search = state.search === '' ? '' : `   search “${state.search}” (Esc)`;
  const filter = state.state === 'all' ? '' : `   only ${state.state}`;
  const keys = 'q quit  ? help  / search  f filter  Enter endpoints';
  return styled('dim', `${keys}   ${found}${search}${filter}`);
}

const HELP: readonly string[] = [
  '',
  ...[
    ['n s p c r i o e', 'sort by name, state, endpoints, active, new connections, in, out, errors'],
    ['R', 'reverse the order'],
    ['f', 'all, in use, not ok, drained'],
    ['/', 'search names and addresses; Esc ends it'],
    ['↑ ↓ j k PgUp PgDn', 'select a service port'],
    ['Enter', 'show its endpoints'],
    ['Space', 'pause, resume'],
    ['q, Ctrl-C', 'quit'],
  ].map(([keys = '', what = '']) => bold(`  ${keys.padEnd(20)}`) + what),
];
