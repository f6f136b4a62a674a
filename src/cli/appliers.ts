import type { AdjustableLog } from '../observe/log.ts';
import type { GlobalOptions } from './flags/global.ts';
import type { Appliers } from './live-settings.ts';

/** Options that may change while the program runs: whoever needs one looks at the time of need. */
export type ChangingOptions = { -readonly [Name in keyof GlobalOptions]: GlobalOptions[Name] };

/** How each setting that is marked as live is put into force. A test compares them with the flags. */
export function appliers(globals: ChangingOptions, log: AdjustableLog): Appliers {
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
  };
}
