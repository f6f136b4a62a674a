import { type Reason, unreachable } from '../../../observe/verdict.ts';
import { drainText } from '../../../proxier/drains.ts';
import { escapeControls } from '../../../util/terminal-text.ts';
import { connectText, lastErrorText } from '../tables.ts';
import {
  type Column,
  COLUMNS,
  elided,
  STATE_STYLES,
  piece,
  type Line,
  type Piece,
} from './columns.ts';
import type { EndpointView, ServiceDetails, ServiceRow } from '../../../admin/views.ts';
import { pad, age, bytes, count } from '../layout.ts';
import { type TopData, SORT_KEY_OF, type TopState } from './state.ts';

export interface Size {
  readonly columns: number;
  readonly rows: number;
}

/** Lines above and below the rows. */
const AROUND = 5;

/** Rows of service ports that fit on a screen. */
export function roomFor({ rows }: Size): number {
  return Math.max(rows - AROUND, 1);
}

/** A screen, no higher than the terminal. Pure: the same data, state and size make the same lines. */
export function drawTop(data: TopData, state: TopState, size: Size, error?: string): Line[] {
  const body = state.help ? helpLines() : rowLines(data, state, size);
  const room = roomFor(size);
  return [
    titleLine(data, state, size, error),
    totalsLine(data),
    noticeLine(data, error),
    headLine(state, size),
    ...body.slice(0, room),
    ...Array.from({ length: Math.max(room - body.length, 0) }, (): Line => []),
    footLine(data, state),
  ].slice(0, size.rows);
}

function titleLine(
  { status }: TopData,
  { paused }: TopState,
  { columns }: Size,
  error: string | undefined,
): Line {
  const { process: about, proxy } = status;
  const { state } = error === undefined ? status.health : unreachable(error);
  const text = [
    about.nodeName ?? '',
    about.command,
    proxy === null ? '' : `engine ${proxy.engine}, portal ${proxy.portal}`,
    `up ${age(about.uptimeSeconds)}`,
    bytes(about.rssBytes),
  ].filter((part) => part !== '');
  const line = [
    piece('kpng-userspace ', 'bold'),
    piece(state, STATE_STYLES[state]),
    piece(`  ${text.join(' · ')}`, 'dim'),
  ];
  if (!paused) return line;
  const used = line.reduce((sum, each) => sum + each.text.length, 0);
  return [...line, piece(' '.repeat(Math.max(columns - used - 6, 2))), piece('paused', 'warn')];
}

function totalsLine({ status: { proxy } }: TopData): Line {
  if (proxy === null) return [piece('This process does not proxy.', 'dim')];
  const { active, rates, states, servicePorts } = proxy;
  const notOk = (['down', 'degraded', 'no-endpoints', 'drained', 'removed'] as const).filter(
    (state) => states[state] > 0,
  );
  return [
    piece('active ', 'dim'),
    piece(String(active.tcp), 'bold'),
    piece(' TCP ', 'dim'),
    piece(String(active.udp), 'bold'),
    piece(' UDP ', 'dim'),
    ...(active.held > 0 ? [piece(String(active.held), 'bold'), piece(' held ', 'dim')] : []),
    piece('  new ', 'dim'),
    piece(`${count(rates.connections)}/s`, 'bold'),
    piece('   in ', 'dim'),
    piece(`${bytes(rates.bytesIn)}/s`, 'bold'),
    piece('   out ', 'dim'),
    piece(`${bytes(rates.bytesOut)}/s`, 'bold'),
    piece('   errors ', 'dim'),
    piece(`${count(rates.errors)}/s`, rates.errors > 0 ? 'bad' : 'bold'),
    piece('   service ports ', 'dim'),
    piece(String(servicePorts), 'bold'),
    ...notOk.flatMap((state): Piece[] => [
      piece(', ', 'dim'),
      piece(`${states[state]} ${state}`, STATE_STYLES[state]),
    ]),
  ];
}

/** The worst problem; problems are more specific than the reasons that count them. */
function noticeLine({ status }: TopData, error: string | undefined): Line {
  const { proxy, health } = status;
  const { reasons } = error === undefined ? health : unreachable(error);
  const problems = proxy?.problems ?? [];
  const is = (wanted: Reason['state']) => reasons.filter(({ state }) => state === wanted);
  const [worst, ...more] = [...is('down'), ...problems, ...is('degraded')];
  if (worst !== undefined) {
    const others = more.length === 0 ? '' : ` (and ${more.length} more: status)`;
    return [piece(`${worst.message}${others}`, is('down').length > 0 ? 'bad' : 'warn')];
  }
  const [drain, ...drains] = proxy?.drains ?? [];
  if (drain === undefined) return [];
  const others = drains.length === 0 ? '' : ` and ${drains.length} more`;
  return [piece(`drained: ${drainText(drain)}${others}`, 'violet')];
}

function columnsFor({ columns }: Size): readonly Column[] {
  return COLUMNS.filter(({ from = 0 }) => columns >= from);
}

function nameWidth(size: Size): number {
  const others = columnsFor(size).reduce((sum, { width }) => sum + width + 1, 0);
  return Math.max(size.columns - others, 16);
}

function headLine(state: TopState, size: Size): Line {
  const title = (text: string, key: string | undefined): string => {
    if (key === undefined || SORT_KEY_OF[key] !== state.sort) return text;
    return `${state.reverse ? '▲' : '▼'}${text}`;
  };
  const cells = columnsFor(size).map(
    ({ title: text, width, align, key }) => ` ${pad(title(text, key), width, align)}`,
  );
  const text = pad(title('SERVICE', 'n'), nameWidth(size), 'left') + cells.join('');
  return [piece(text, 'head')];
}

function rowLines({ services, details }: TopData, state: TopState, size: Size): Line[] {
  const lines: Line[] = [];
  const room = roomFor(size);
  const below = details === undefined ? [] : endpointLines(details);
  // Keep the selected row visible, with some of its open details.
  const first = Math.max(
    0,
    state.selected - Math.max(room - 1 - Math.min(below.length, room - 1), 0),
  );
  for (const [index, row] of services.rows.entries()) {
    if (index < first) continue;
    lines.push(rowLine(row, index === state.selected, size));
    if (row.name === state.open && details?.name === row.name) lines.push(...below);
    if (lines.length >= room) break;
  }
  if (services.rows.length === 0) lines.push([piece('No matching service port.', 'dim')]);
  return lines;
}

function rowLine(row: ServiceRow, selected: boolean, size: Size): Line {
  const width = nameWidth(size);
  const suffix = row.protocol === 'UDP' ? ' UDP' : '';
  const name = escapeControls(row.name) + suffix;
  const shown = elided(name, width);
  return [
    piece(shown, selected ? 'selected' : 'bold'),
    piece(' '.repeat(width - shown.length)),
    ...columnsFor(size).map(({ width: wide, align, cell, style }) =>
      piece(` ${pad(cell(row), wide, align).slice(0, wide)}`, style?.(row)),
    ),
  ];
}

function endpointLines({ endpointsList }: ServiceDetails): Line[] {
  if (endpointsList.length === 0) return [[piece('    no endpoints', 'dim')]];
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

function footLine({ services }: TopData, state: TopState): Line {
  if (state.typing) return [piece('search: ', 'bold'), piece(`${state.search}▏`)];
  const found =
    services.matched === services.total
      ? `${services.total}`
      : `${services.matched} of ${services.total}`;
  const search = state.search === '' ? '' : `   search “${state.search}” (Esc)`;
  const filter = state.filter === 'all' ? '' : `   only ${state.filter}`;
  return [
    piece('q quit  ? help  / search  f filter  Enter endpoints', 'dim'),
    piece(`   ${found}${search}${filter}`, 'dim'),
  ];
}

function helpLines(): Line[] {
  const rows: readonly (readonly [string, string])[] = [
    ['n s p c r i o e', 'sort by name, state, endpoints, active, new connections, in, out, errors'],
    ['R', 'reverse the order'],
    ['f', 'all, in use, not ok, drained'],
    ['/', 'search names and addresses; Esc ends it'],
    ['↑ ↓ j k PgUp PgDn', 'select a service port'],
    ['Enter', 'show its endpoints'],
    ['Space', 'pause, resume'],
    ['q, Ctrl-C', 'quit'],
  ];
  return [
    [],
    ...rows.map(([keys, what]): Line => [piece(`  ${keys.padEnd(20)}`, 'bold'), piece(what)]),
  ];
}
