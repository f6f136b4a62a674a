import type { KpngError } from '../errors.ts';
import { typedChannel } from '../util/channel.ts';

/** A setting that differs from the running program's. */
export interface SettingChange {
  /** Without dashes. */
  flag: string;
  /** The field of the file, such as `logging.verbosity`; the flag's field name if it is no longer in the file. */
  field: string;
  /** As on a command line; empty: no value. */
  from: string;
  to: string;
}

/** A valid configuration file was re-read. */
export interface ConfigReloaded {
  path: string;
  /** Settings that have taken effect. */
  changed: readonly SettingChange[];
  /** Settings that take effect only after a restart. */
  refused: readonly SettingChange[];
}

export const configReloaded = typedChannel<ConfigReloaded>('config:reloaded');

/** The configuration file cannot be read or is invalid; the previous settings stay in force. */
export const configFailed = typedChannel<{
  path: string;
  error: KpngError;
}>('config:failed');
