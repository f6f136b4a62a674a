import { type ReadDocuments, readDocuments } from '../config/documents.ts';
import { configFailed, configReloaded } from '../config/events.ts';
import { CONFIG_LIMITS } from '../config/limits.ts';
import { CONFIG_FILE, readConfigText, readInThread } from '../config/read.ts';
import { type ConfigFile, invalidConfig, resolveConfig } from '../config/resolve.ts';
import { KpngError, messageOf } from '../errors.ts';
import { systemClock } from '../util/clock.ts';
import { FileWatcher } from '../util/file-watcher.ts';
import type { Adopted, FollowedFile, LiveSettings } from './live-settings.ts';
import { configurableFlags } from './parse.ts';

/** Reads a configuration file. Rejects with KPNG_CONFIG_READ or KPNG_CONFIG_INVALID. */
export async function loadConfig(path: string): Promise<ConfigFile> {
  return parseConfig(path, await readConfigText(path));
}

/** Parses a configuration file, from its text or its parsed documents. Throws KPNG_CONFIG_INVALID. */
export function parseConfig(path: string, content: string | ReadDocuments): ConfigFile {
  const resolved = resolveConfig(path, content, configurableFlags());
  if (resolved.ok) return resolved.config;
  throw invalidConfig(path, resolved.problems);
}

/**
 * Reads a configuration file again whenever it changes. Live settings take effect at once; events report what
 * changed, what takes effect only at the next start, and errors.
 */
export function followConfig({ path, read }: FollowedFile, live: LiveSettings) {
  /** The last reports, since the file is read more often than it changes. */
  let reported = '[]';
  let asked = false;

  const isNew = (summary: string): boolean => {
    const news = asked || summary !== reported;
    reported = summary;
    asked = false;
    return news;
  };
  const fail = (error: unknown): void => {
    const failure =
      error instanceof KpngError
        ? error
        : new KpngError('KPNG_CONFIG_READ', `${path}: ${messageOf(error)}`, { cause: error });
    if (isNew(failure.message) && configFailed.hasSubscribers) {
      configFailed.publish({ path, error: failure });
    }
  };
  let newest: string | undefined;
  const take = async (text: string): Promise<void> => {
    const isFirst = newest === undefined;
    newest = text;
    let adopted: Adopted;
    try {
      // At startup no client waits yet, and a thread would cost more than most files.
      const content = isFirst ? readDocuments(text) : await readInThread(path, text);
      if (newest !== text) return;
      adopted = live.adopt(read(content));
    } catch (error) {
      fail(error);
      return;
    }
    const news = isNew(JSON.stringify(adopted.refused)) || adopted.changed.length > 0;
    if (news && configReloaded.hasSubscribers) configReloaded.publish({ path, ...adopted });
  };
  const watcher = new FileWatcher({
    path,
    kind: CONFIG_FILE,
    limits: CONFIG_LIMITS,
    clock: systemClock,
    onContent: (bytes) => void take(new TextDecoder().decode(bytes)),
    onError: fail,
    onRecovered: () => watcher.again(),
  });
  watcher.start();
  return {
    /** Reads the file again, even if it appears unchanged. */
    again() {
      asked = true;
      watcher.again();
    },
    close() {
      newest = '';
      watcher.close();
    },
  };
}
