import type { EndpointState, ServiceRow, ServiceState } from '../../../admin/views.ts';
import type { HealthState } from '../../../observe/verdict.ts';
import { bytes, count } from '../layout.ts';
import type { Style } from './styled.ts';

export const STATE_STYLES: Readonly<Record<ServiceState | EndpointState | HealthState, Style>> = {
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

export interface Column {
  readonly title: string;
  readonly width: number;
  /** Minimum number of terminal columns to show it. */
  readonly from?: number;
  /** Default: right. */
  readonly align?: 'left';
  /** The key that sorts by it. */
  readonly key?: string;
  readonly cell: (row: ServiceRow) => string;
  readonly style?: (row: ServiceRow) => Style;
}

const zero = (value: number): Style => (value === 0 ? 'dim' : 'plain');

function figure(
  title: string,
  width: number,
  key: string,
  valueOf: (row: ServiceRow) => number,
  format = count,
): Column {
  return {
    title,
    width,
    key,
    cell: (row) => format(valueOf(row)),
    style: (row) => zero(valueOf(row)),
  };
}

export const COLUMNS: readonly Column[] = [
  {
    title: 'STATE',
    width: 9,
    align: 'left',
    key: 's',
    cell: ({ state }) => (state === 'no-endpoints' ? 'no-endpts' : state),
    style: ({ state }) => STATE_STYLES[state],
  },
  {
    title: 'ADDRESS',
    width: 22,
    align: 'left',
    from: 140,
    cell: ({ addresses: [first = '-'] }) => first,
    style: () => 'dim',
  },
  {
    title: 'ENDPTS',
    width: 6,
    key: 'p',
    cell: ({ endpoints: { usable, total } }) =>
      usable === total ? String(total) : `${usable}/${total}`,
    style: ({ endpoints: { usable, total } }) => (usable < total ? 'warn' : zero(total)),
  },
  figure('ACTIVE', 6, 'c', ({ active }) => active),
  figure('CONN/S', 6, 'r', ({ rates }) => rates.connections),
  figure('IN/S', 7, 'i', ({ rates }) => rates.bytesIn, bytes),
  figure('OUT/S', 7, 'o', ({ rates }) => rates.bytesOut, bytes),
  {
    title: 'ERRORS',
    width: 6,
    key: 'e',
    cell: ({ totals }) => count(totals.errors),
    style: ({ totals, rates }) => (rates.errors > 0 ? 'bad' : zero(totals.errors)),
  },
  {
    title: '5 MINUTES',
    width: 15,
    align: 'left',
    from: 118,
    cell: ({ spark }) => bars(spark ?? []),
    style: () => 'blue',
  },
];

const BARS = '▁▂▃▄▅▆▇█';

/** A plot with half as many characters as numbers. */
export function bars(values: readonly number[]): string {
  const top = Math.max(...values, 1);
  let text = '';
  for (let index = 0; index + 1 < values.length; index += 2) {
    const value = ((values[index] ?? 0) + (values[index + 1] ?? 0)) / 2;
    const step = Math.ceil((value / top) * (BARS.length - 1));
    text += value === 0 ? ' ' : (BARS[step] ?? '');
  }
  return text;
}

/** Whole if it fits; otherwise its beginning and end, since names differ in both. */
export function elided(name: string, width: number): string {
  if (name.length <= width) return name;
  const begin = Math.ceil((width - 1) / 2);
  return `${name.slice(0, begin)}…${name.slice(name.length - (width - 1 - begin))}`;
}
