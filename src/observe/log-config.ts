import * as config from '../config/events.ts';
import { logRule, type LogRule } from './log-rules.ts';
import type { LogKeys } from './log.ts';

/** Log lines of configuration files that are read again. */
export const CONFIG_RULES: readonly LogRule[] = [
  logRule({
    channel: config.configReloaded,
    severity: 'info',
    v: 0,
    message: 'Read the configuration again',
    keys: ({ path, changed, refused }) => ({
      path,
      changed: changed.length,
      refused: refused.length,
    }),
  }),
  logRule({
    channel: config.configReloaded,
    severity: 'info',
    v: 0,
    message: 'Changed a setting',
    keys: ({ changed }) => changed.map(keysOf),
  }),
  logRule({
    channel: config.configReloaded,
    severity: 'warn',
    v: 0,
    message: 'A changed setting takes effect only when the program starts again',
    keys: ({ refused }) =>
      refused.map((change) => ({ ...keysOf(change), code: 'KPNG_CONFIG_NOT_LIVE' })),
  }),
  logRule({
    channel: config.configFailed,
    severity: 'error',
    v: 0,
    message: 'The configuration is not usable; the former settings stay',
    keys: ({ path, error }) => ({ path, err: error }),
  }),
];

function keysOf({ flag, field, from, to }: config.SettingChange): LogKeys {
  return { field, ...(flag !== '' && { flag: `--${flag}` }), from, to };
}
