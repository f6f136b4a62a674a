import type { KpngError } from '../errors.ts';
import { typedChannel } from '../util/channel.ts';

/** A setting that differs from the running program's. */
export interface SettingChange {
  /** Without dashes. */
  flag: string;
  /** The field of the file, such as `logging.verbosity`; the flag's own name for files when it is not in the file any more. */
  field: string;
  /** As on a command line; empty: no value. */
  from: string;
  to: string;
}

/** A good configuration file was read again. */
export interface ConfigReloaded {
  path: string;
  /** The value in force now. */
  changed: readonly SettingChange[];
  /** Settings that take effect only after a restart. */
  refused: readonly SettingChange[];
}

/** The configuration file cannot be read, or has errors; the previous settings stay in force. */
export interface ConfigFailed {
  path: string;
  error: KpngError;
}

export const configReloaded = typedChannel<ConfigReloaded>('config:reloaded');
export const configFailed = typedChannel<ConfigFailed>('config:failed');
