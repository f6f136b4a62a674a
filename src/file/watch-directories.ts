import { watch, type BigIntStats } from 'node:fs';
import { lstat, readlink, stat } from 'node:fs/promises';
import { basename, dirname, isAbsolute, join, parse, resolve, sep } from 'node:path';

/** A directory in which something decides where a path leads. */
export interface WatchedDirectory {
  readonly path: string;
  /** Differs for another directory in its place, and for other names. */
  readonly identity: string;
  /** Names in it that matter. */
  readonly names: ReadonlySet<string>;
}

/** As many symbolic links as Linux follows. */
const MAX_LINKS = 40;

/**
 * The directories in which a file, or any symbolic link on the way to it, could be replaced. When
 * the way ends early, the last directory is the one in which the next part is missing.
 *
 * A ConfigMap volume, for example, has `state.yaml -> ..data/state.yaml` and `..data -> ..2026_01`:
 * that gives the volume, with the names `state.yaml` and `..data`, and `..2026_01` itself.
 */
export async function directoriesOf(path: string): Promise<WatchedDirectory[]> {
  const found = new Map<string, Set<string>>();
  const note = (directory: string, name: string): void => {
    // The system tells of a directory that is itself moved or removed by its own name.
    const names = found.get(directory) ?? new Set([basename(directory)]);
    found.set(directory, names.add(name));
  };
  let { root: current } = parse(resolve(path));
  const rest = partsOf(resolve(path), current);
  let links = 0;
  for (let name = rest.shift(); name !== undefined; name = rest.shift()) {
    const entry = join(current, name);
    const stats = await statOrMissing(entry);
    if (stats === undefined || rest.length === 0 || stats.isSymbolicLink()) note(current, name);
    if (stats === undefined) break;
    if (stats.isSymbolicLink()) {
      links += 1;
      if (links > MAX_LINKS) break;
      const target = await readlink(entry).catch(() => '.');
      if (isAbsolute(target)) ({ root: current } = parse(target));
      rest.unshift(...partsOf(target, isAbsolute(target) ? current : ''));
    } else {
      current = name === '..' ? dirname(current) : entry;
    }
  }
  return withIdentities(found);
}

function partsOf(path: string, root: string): string[] {
  return path
    .slice(root.length)
    .split(sep === '\\' ? /[\\/]/ : '/')
    .filter(isPart);
}

function isPart(part: string): boolean {
  return part !== '' && part !== '.';
}

async function statOrMissing(path: string): Promise<BigIntStats | undefined> {
  // Whatever the reason is, reading the file meets it too and reports it.
  return lstat(path, { bigint: true }).catch(() => undefined);
}

async function withIdentities(
  found: ReadonlyMap<string, ReadonlySet<string>>,
): Promise<WatchedDirectory[]> {
  const directories: WatchedDirectory[] = [];
  for (const [path, names] of found) {
    const stats = await stat(path, { bigint: true }).catch(() => undefined);
    if (stats !== undefined) {
      const identity = [path, stats.dev, stats.ino, ...names].join(':');
      directories.push({ path, identity, names });
    }
  }
  return directories;
}

/** Something that can be ended. */
export interface Closable {
  close(): void;
}

/** Calls back whenever something may have happened to one of the names in a directory. */
export type WatchDirectory = (directory: WatchedDirectory, onEvent: () => void) => Closable;

/**
 * Watches a directory through `fs.watch`. It never fails: when the system has no watches left, or
 * the file system does not support them, the events just do not come, and the regular look at the
 * file finds the change a little later.
 */
export const watchDirectory: WatchDirectory = ({ path, names }, onEvent) => {
  try {
    const watcher = watch(path, { persistent: false }, (_event, name) => {
      if (name === null || names.has(name)) onEvent();
    });
    watcher.on('error', () => watcher.close());
    return watcher;
  } catch {
    return { close: () => undefined };
  }
};
