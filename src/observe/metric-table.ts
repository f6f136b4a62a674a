import { Counter, Gauge, Histogram, type Registry } from 'prom-client';

interface Row<Kind extends string> {
  readonly kind: Kind;
  readonly help: string;
  readonly labelNames: readonly string[];
  readonly buckets?: number[];
}

type Metric<Kind> = Kind extends 'counter' ? Counter : Kind extends 'gauge' ? Gauge : Histogram;

export function counter(help: string, ...labelNames: string[]): Row<'counter'> {
  return { kind: 'counter', help, labelNames };
}

export function gauge(help: string, ...labelNames: string[]): Row<'gauge'> {
  return { kind: 'gauge', help, labelNames };
}

/** `buckets`: upper bounds, in the unit of the metric. */
export function histogram(help: string, buckets: number[]): Row<'histogram'> {
  return { kind: 'histogram', help, labelNames: [], buckets };
}

/** Registers the metrics of a table, and returns them by their names. */
export function registerTable<const Table extends Readonly<Record<string, Row<string>>>>(
  registry: Registry,
  table: Table,
): { readonly [Name in keyof Table]: Metric<Table[Name]['kind']> } {
  const metrics = Object.entries(table).map(([name, { kind, help, labelNames, buckets }]) => {
    const options = { name, help, labelNames, registers: [registry] };
    if (kind === 'counter') return [name, new Counter(options)];
    if (kind === 'gauge') return [name, new Gauge(options)];
    return [name, new Histogram({ ...options, ...(buckets !== undefined && { buckets }) })];
  });
  return Object.fromEntries(metrics);
}
