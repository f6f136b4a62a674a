import type { AdjustableLog } from '../observe/log.ts';
import { LIMIT_NAMES, LIVE_LIMITS, type LimitChange } from '../proxysocket/limits.ts';
import type { GlobalOptions } from './flags/global.ts';
import type { Appliers } from './live-settings.ts';

/** Options that may change while the program runs: whoever needs one looks at the time of need. */
export type ChangingOptions = { -readonly [Name in keyof GlobalOptions]: GlobalOptions[Name] };

/** What settings are put into force on. */
export interface Appliance {
  readonly globals: ChangingOptions;
  readonly log: AdjustableLog;
  /** Of the data path. */
  readonly setLimits: (limits: LimitChange) => void;
}

/** How each setting that is marked as live is put into force. A test compares them with the flags. */
export function appliers({ globals, log, setLimits }: Appliance): Appliers {
  return {
    v({ globals: next }) {
      globals.v = next.v;
      log.setVerbosity(next.v);
    },
    'drain-delay'({ globals: next }) {
      globals['drain-delay'] = next['drain-delay'];
    },
    'drain-timeout'({ globals: next }) {
      globals['drain-timeout'] = next['drain-timeout'];
    },
    ...limitAppliers(setLimits),
  };
}

function limitAppliers(setLimits: Appliance['setLimits']): Appliers {
  return Object.fromEntries(
    LIVE_LIMITS.map((limit) => [
      LIMIT_NAMES[limit],
      ({ sink }) => {
        if (sink.limits !== undefined) setLimits({ [limit]: sink.limits[limit] });
      },
    ]),
  ) satisfies Appliers;
}

/** Limits that may change before there is a data path, which then gets the last ones. */
export class LateLimits {
  readonly #early: LimitChange = {};
  #target: ((limits: LimitChange) => void) | undefined;

  set(limits: LimitChange): void {
    if (this.#target === undefined) Object.assign(this.#early, limits);
    else this.#target(limits);
  }

  /** There is a data path now. */
  reach(target: (limits: LimitChange) => void): void {
    this.#target = target;
    if (Object.keys(this.#early).length > 0) target(this.#early);
  }
}
