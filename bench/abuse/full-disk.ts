import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { StageOptions } from './stage.ts';

/** Mounts a tiny file system for itself alone, fills it, and becomes the program. */
const SCRIPT = `
mount -t tmpfs -o size=16k tmpfs "$0" || exit 1
head -c 64k /dev/zero > "$0/all-there-is" 2> /dev/null
exec "$@"
`;

/** The folder on the full file system. */
export function fullFolder(folder: string): string {
  return join(folder, 'full');
}

/** Options with which the program has `full` in the folder as TMPDIR, without room for a byte. Needs root. */
export function onFullDisk(folder: string): Pick<StageOptions, 'inside' | 'env'> {
  const full = fullFolder(folder);
  mkdirSync(full);
  return {
    inside: ['unshare', '--mount', '--propagation', 'private', 'sh', '-c', SCRIPT, full],
    env: { TMPDIR: full },
  };
}
