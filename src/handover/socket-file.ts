import { readFileSync, type Stats } from 'node:fs';
import { isServed, type FileId } from '../util/socket-file.ts';

/**
 * Throws if a file at the path must not be replaced. Only the owner of the path may replace it: the process that found
 * no listener, or took over from it. `expected` is the file that was there then.
 */
export async function checkUnserved(path: string, found: Stats, expected: FileId): Promise<void> {
  if (!found.isSocket()) throw new Error(`${path} exists and is not a socket`);
  if (found.ino !== expected && (isListed(path) || (await isServed(path)))) {
    throw new Error(`another process listens on ${path}`);
  }
}

/**
 * Whether another socket of this network namespace listens there. The kernel lists the name that a socket was bound
 * to, which is next to the path; one of these is our own. Checked before calling, since a call would delay a new
 * process.
 */
function isListed(path: string): boolean {
  const names = readFileSync('/proc/net/unix', 'utf8')
    .split('\n')
    .filter((line) => line.split(/\s+/)[3] === LISTENING)
    .map((line) => line.slice(line.indexOf('/')));
  return names.filter((name) => name === path || name.startsWith(`${path}~`)).length > 1;
}

/** The flag `__SO_ACCEPTCON`, as `/proc/net/unix` has it. */
const LISTENING = '00010000';
