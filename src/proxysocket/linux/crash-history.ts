import { createHash } from 'node:crypto';
import {
  accessSync,
  constants,
  lstatSync,
  mkdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Crashes in a row after which the next start avoids the engine. */
export const MAX_CRASHES = 3;
/** Crashes are forgotten after this long, so that the engine gets another chance. Milliseconds. */
const WINDOW_MS = 60 * 60_000;

/**
 * Remembers crashes in the start-up probes of the `linux` engine: a wrong system call can end the process without a
 * message, and a service manager would restart it into the same crash. `instance` identifies this instance of the
 * program among others of the same user; `folder`, with the files, is created when needed.
 *
 * A start adds its process to the file before the probes, about a second, and removes the file after them; a process
 * that is still in it has crashed in them, unless it runs. Later crashes do not count, because only the parent learns
 * how a process died.
 *
 * Nothing is remembered where the file cannot be written, or others can write to the directory. `pid`: the process that
 * starts.
 */
export function crashHistory(instance: string, folder = defaultFolder(), pid = process.pid) {
  const name = createHash('sha256').update(instance).digest('hex').slice(0, 16);
  /** Has the process id of each start. Removing it makes the next start retry the engine. */
  const path = join(folder, name);
  const starts = (): string[] => {
    const found = isPrivate(folder) ? attempt(() => lstatSync(path)) : undefined;
    if (found === undefined || found.mtimeMs <= Date.now() - WINDOW_MS) return [];
    return attempt(() => readFileSync(path, 'latin1').split('\n')) ?? [];
  };
  /** In a container, a start may have the process id of the one before. */
  const isRunning = (start: string): boolean =>
    Number(start) !== pid && attempt(() => process.kill(Number(start), 0)) === true;
  const crashes = (): number => starts().filter((start) => !isRunning(start)).length;
  /** Runs the probes. If the file cannot be written, no crash is remembered; if it stays, it counts until it is too old. */
  const during = async <T>(probes: () => Promise<T>): Promise<T> => {
    const end = (): void => attempt(() => rmSync(path, { force: true }));
    attempt(() => {
      mkdirSync(folder, { mode: 0o700, recursive: true });
      const last = [...starts(), pid].slice(-MAX_CRASHES);
      if (isPrivate(folder)) writeFileSync(path, last.join('\n'), { mode: 0o600 });
    });
    // An uncaught error or a second signal; not a crash in a system call.
    process.once('exit', end);
    try {
      return await probes();
    } finally {
      process.off('exit', end);
      end();
    }
  };
  return { path, crashes, during };
}

/** Whether it is a folder that only its owner, this user, may write to. */
function isPrivate(path: string): boolean {
  const found = attempt(() => lstatSync(path));
  if (found === undefined) return false;
  const { uid, mode } = found;
  return found.isDirectory() && (mode & 0o022) === 0 && uid === (process.getuid?.() ?? uid);
}

/** One per user: in `/run` where writable, since it is emptied at boot. */
function defaultFolder(): string {
  const folder = attempt(() => {
    accessSync('/run', constants.W_OK);
    return '/run';
  });
  return join(folder ?? tmpdir(), `kpng-userspace-linux-engine.${process.getuid?.() ?? 0}`);
}

/** Undefined if the work throws. */
function attempt<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch {
    return undefined;
  }
}
