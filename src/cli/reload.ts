import type { ConfigFile } from '../config/config-file.ts';
import { configFailed, configReloaded } from '../config/events.ts';
import { CONFIG_LIMITS } from '../config/limits.ts';
import { readConfigText } from '../config/read.ts';
import { KpngError, messageOf } from '../errors.ts';
import { FileWatcher } from '../file/watch.ts';
import { DEFAULT_FILE_LIMITS } from '../file/limits.ts';
import type { Clock } from '../util/clock.ts';
import { understand } from './config-file.ts';
import type { LiveSettings } from './live-settings.ts';
import type { Invocation } from './parse.ts';

export interface FollowConfigOptions {
  readonly path: string;
  /** Understands the same command line with another file. */
  readonly read: (config: ConfigFile) => Invocation;
  readonly live: LiveSettings;
  readonly clock: Clock;
}

/** A configuration file that is followed. */
export interface FollowedConfig {
  /** Reads the file again, even if nothing seems to have changed. */
  again(): void;
  close(): void;
}

/**
 * Reads a configuration file again whenever it changes, by whatever means. What can change while the
 * program runs, does; events tell what did, what could not, and what was wrong.
 */
export function followConfig({ path, read, live, clock }: FollowConfigOptions): FollowedConfig {
  /** What has been told already: a file is read more often than it changes. */
  let told: string | undefined;
  let asked = false;

  const take = (text: string): void => {
    const outcome = adopt(text);
    const summary =
      outcome instanceof KpngError ? outcome.message : JSON.stringify(outcome.refused);
    const isNews = asked || summary !== (told ?? '[]');
    told = summary;
    asked = false;
    if (outcome instanceof KpngError) {
      if (isNews && configFailed.hasSubscribers) configFailed.publish({ path, error: outcome });
    } else if ((isNews || outcome.changed.length > 0) && configReloaded.hasSubscribers) {
      configReloaded.publish({ path, ...outcome });
    }
  };
  const adopt = (text: string): ReturnType<LiveSettings['adopt']> | KpngError => {
    const config = understand(path, text);
    if (config instanceof KpngError) return config;
    const invocation = read(config);
    if (invocation.kind === 'run') return live.adopt(invocation);
    const why = invocation.kind === 'usage-error' ? invocation.error.message : invocation.kind;
    return new KpngError('KPNG_CONFIG_INVALID', `${path}: ${why}`);
  };
  const fail = (error: unknown): void => {
    const failure =
      error instanceof KpngError
        ? error
        : new KpngError('KPNG_CONFIG_READ', `${path}: ${messageOf(error)}`, { cause: error });
    told = failure.message;
    asked = false;
    if (configFailed.hasSubscribers) configFailed.publish({ path, error: failure });
  };
  const watcher = new FileWatcher({
    path,
    limits: { ...DEFAULT_FILE_LIMITS, ...CONFIG_LIMITS },
    clock,
    onContent: (bytes) => take(new TextDecoder().decode(bytes)),
    // What it says is about state files; reading again tells it of this one.
    onError: () => {
      readConfigText(path).then(take, fail);
    },
    onRecovered: () => watcher.again(),
  });
  watcher.start();
  return {
    again() {
      asked = true;
      watcher.again();
    },
    close: () => watcher.close(),
  };
}
