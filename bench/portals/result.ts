/** What `npm run bench -- portals` measures; the form of its JSON file. */
import type { Summary } from '../report/stats.ts';
import type { ChangeKind } from './subject.ts';

/** How long changes took. Milliseconds. */
export interface Times {
  readonly median: number;
  /** As good as the slowest one when there are few. */
  readonly p95: number;
  readonly samples: number;
}

export interface ChangeResult {
  /** Until the proxy has nothing to do for it any more; undefined where it does not report that. */
  readonly done: Times | undefined;
  /** Until a client that tries all the time sees it; undefined where no client could. */
  readonly seen: Times | undefined;
  /** Programs run for one change, until it is done: the median. */
  readonly processes: number;
}

/** One proxy with one number of service ports. */
export interface PortalResult {
  readonly subject: string;
  readonly servicePorts: number;
  /** Those that clients could use. */
  readonly served: number;
  /** From the first state until the last rule and listener. Milliseconds. */
  readonly cold: Summary;
  /** CPU of that, programs included. Seconds. */
  readonly coldCpu: number;
  readonly coldProcesses: number;
  readonly changes: Readonly<Record<ChangeKind, ChangeResult>>;
  /** Share of one core while nothing changes. Per cent. */
  readonly idleCpu: number;
  /** Memory before the first change. Bytes. */
  readonly resident: number;
  readonly anonymous: number;
  /** After the last change. */
  readonly residentLater: number;
}

export interface PortalReport {
  readonly results: readonly PortalResult[];
}

/** Undefined when there is no sample. */
export function times(samples: readonly number[]): Times | undefined {
  const sorted = samples.toSorted((a, b) => a - b);
  const at = (share: number): number =>
    sorted[Math.min(sorted.length - 1, Math.ceil(share * sorted.length) - 1)] ?? 0;
  if (sorted.length === 0) return undefined;
  return { median: at(0.5), p95: at(0.95), samples: sorted.length };
}
