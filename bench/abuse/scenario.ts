/** What an abuse is, and when the program has withstood it. */
import type { EngineName } from '../support/command.ts';
import type { Stage, StageOptions } from './stage.ts';

/** How much is done: a short run is for CI, a long one for docs/reference/robustness.md. */
export class Size {
  readonly isLong: boolean;

  constructor(isLong: boolean) {
    this.isLong = isLong;
  }

  pick<T>(short: T, long: T): T {
    return this.isLong ? long : short;
  }
}

/** What came of one run, beside what the driver measures itself. */
export interface Outcome {
  /** What was done, with numbers. */
  readonly did: string;
  /** What the scenario saw that must not be. Each is a reason to fail. */
  readonly mistakes?: readonly string[];
}

export interface Abuse {
  /** Kebab case, for `--only`. */
  readonly name: string;
  /** A few words for the table. */
  readonly title: string;
  /** Default: both. `node` alone where they do not differ: its traffic shares the main thread. */
  readonly engines?: readonly EngineName[];
  /** In the short run as well. Default: true. */
  readonly short?: boolean;
  /** Programs that it needs, and `root`. With `ip` it has a network namespace of its own. */
  readonly needs?: readonly string[];
  /** By how much the memory of the process may grow. MiB. Default: 200. */
  readonly memoryMiB?: number;
  /** The p99 of control traffic may be so many times that at rest, or 100 ms, whichever is longer. Default: 50. */
  readonly latencyRatio?: number;
  /**
   * What control traffic has to bear: new connections may be refused (`refusals`), or all may be cut
   * (`cuts`); it has to be served at the end all the same. Default: nothing.
   */
  readonly allows?: 'refusals' | 'cuts';
  readonly stage?: (stage: Stage) => StageOptions | Promise<StageOptions>;
  run(stage: Stage, size: Size): Promise<Outcome>;
}

/** What control traffic saw since it was looked at last. */
export interface Traffic {
  readonly exchanged: number;
  /** Exchanges on a long connection that failed or differed. */
  readonly lost: number;
  /** Short connections that did. */
  readonly refused: number;
  readonly datagrams: number;
  readonly datagramsLost: number;
  readonly probes: number;
  readonly probesFailed: number;
  /** Of exchanges on the long connection. Milliseconds. */
  readonly p99: number;
  readonly mistakes: readonly string[];
}

/** Everything measured of one run. */
export interface Result extends Outcome {
  readonly name: string;
  readonly title: string;
  readonly engine: EngineName;
  /** How the process ended, if it did. */
  readonly ended: string | undefined;
  /** Resident memory before, and the most of it during. Bytes. */
  readonly memory: { readonly rest: number; readonly peak: number };
  /** Undefined where the program carries no traffic. */
  readonly control: { readonly rest: Traffic; readonly during: Traffic } | undefined;
  readonly seconds: number;
}

const MIB = 1024 ** 2;
/** Part of the control datagrams that a loaded host may drop. */
const DATAGRAM_LOSS = 0.01;
/** A p99 below this is never a reason to fail. Milliseconds. */
const UNNOTICED_MS = 100;

/** Why the program has not withstood it; empty if it has. `timed`: latency counts, too. */
export function evaluate(abuse: Abuse, result: Result, timed: boolean): string[] {
  const { memoryMiB = 200, latencyRatio = 50, allows } = abuse;
  const reasons: string[] = [];
  if (result.ended !== undefined) reasons.push(`the process ${result.ended}`);
  const growth = (result.memory.peak - result.memory.rest) / MIB;
  if (growth > memoryMiB) reasons.push(`${growth.toFixed(0)} MiB more, bound ${memoryMiB}`);
  if (result.control !== undefined && allows !== 'cuts') {
    const { rest, during } = result.control;
    if (during.lost > 0) reasons.push(`control: ${during.lost} lost (${during.mistakes[0]})`);
    if (during.refused > 0 && allows !== 'refusals') {
      reasons.push(`control: ${during.refused} refused (${during.mistakes[0]})`);
    }
    if (during.exchanged === 0) reasons.push('control: nothing exchanged');
    if (during.probesFailed > 0) reasons.push(`${during.probesFailed} health probes failed`);
    if (during.datagramsLost > Math.max(2, during.datagrams * DATAGRAM_LOSS)) {
      reasons.push(`control: ${during.datagramsLost} datagrams lost`);
    }
    const bound = Math.max(UNNOTICED_MS, rest.p99 * latencyRatio);
    if (timed && during.p99 > bound) {
      reasons.push(`control: p99 ${during.p99.toFixed(0)} ms, bound ${bound.toFixed(0)} ms`);
    }
  }
  const { mistakes = [] } = result;
  if (mistakes.length > 0) reasons.push(`${mistakes.length} mistakes: ${mistakes[0]}`);
  return reasons;
}
