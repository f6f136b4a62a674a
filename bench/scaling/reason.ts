/**
 * What follows from a run for a machine with many cores: nothing of it is measured. Memory is drawn out as a
 * straight line, and times in proportion to the number of workers.
 */
import { threeDigits } from '../report/stats.ts';
import type { Rows } from '../report/table.ts';
import type { Cost } from './cost.ts';

export const WORKERS = 64;
export const LISTENERS = 10_000;

/** The value of a cost at so many workers, on the line through the fewest (of several) and the most measured. */
export function drawnOut(
  costs: readonly Cost[],
  workers: number,
  pick: (cost: Cost) => number,
): number | undefined {
  const several = costs
    .filter((cost) => cost.workers > 1)
    .toSorted((one, other) => one.workers - other.workers);
  const [first, last] = [several[0], several.at(-1)];
  if (first === undefined || last === undefined || first === last) return undefined;
  const slope = (pick(last) - pick(first)) / (last.workers - first.workers);
  return pick(last) + slope * (workers - last.workers);
}

/** The value at so many workers of a cost that is in proportion to them, from all runs with several. */
export function inProportion(
  costs: readonly Cost[],
  workers: number,
  pick: (cost: Cost) => number,
): number | undefined {
  const several = costs.filter((cost) => cost.workers > 1);
  const sum = (of: (cost: Cost) => number): number =>
    several.reduce((total, cost) => total + of(cost), 0);
  return several.length === 0 ? undefined : (workers * sum(pick)) / sum((cost) => cost.workers);
}

/** A column for each engine that was measured with two numbers of several workers. */
export function reasonedRows(costs: readonly Cost[]): Rows {
  const engines = [...new Set(costs.map(({ engine }) => engine))];
  const row = (title: string, cell: (own: readonly Cost[]) => string | undefined): string[] => [
    title,
    ...engines.map((engine) => cell(costs.filter((cost) => cost.engine === engine)) ?? '-'),
  ];
  const each = (pick: (cost: Cost) => number) => (cost: Cost) => pick(cost) / cost.servicePorts;
  const seconds = (own: readonly Cost[], pick: (cost: Cost) => number): string | undefined => {
    const one = inProportion(own, WORKERS, each(pick));
    return one === undefined ? undefined : `${threeDigits(one * LISTENERS)} s`;
  };
  return [
    [`${WORKERS} workers, ${LISTENERS.toLocaleString('en')} service ports`, ...engines],
    row('memory without service ports', (own) => {
      const bytes = drawnOut(own, WORKERS, ({ emptyBytes }) => emptyBytes);
      return bytes === undefined ? undefined : `${threeDigits(bytes / 1024 ** 3)} GiB`;
    }),
    row('descriptors of the listeners', (own) => {
      const one = inProportion(own, WORKERS, (cost) =>
        Math.round(cost.descriptors / (cost.servicePorts - 1)),
      );
      return one === undefined ? undefined : Math.round(one * LISTENERS).toLocaleString('en');
    }),
    row('CPU of opening all of them, all threads', (own) =>
      seconds(own, ({ applyCpu }) => applyCpu),
    ),
    row('of that, main thread', (own) => seconds(own, ({ applyMainCpu }) => applyMainCpu)),
    row('new endpoints for all of them, main thread', (own) =>
      seconds(own, ({ endpointsMainCpu }) => endpointsMainCpu),
    ),
    row('reading all counters once, main thread', (own) =>
      seconds(own, ({ scrapeMainCpu }) => scrapeMainCpu),
    ),
  ];
}
