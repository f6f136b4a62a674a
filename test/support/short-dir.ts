import { mkdtempSync, rmSync, lstatSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Teardown } from './sockets.ts';

/** A directory with a path that is short enough for sockets. It goes away with the test. */
export function shortDir(t: Teardown): string {
  const path = mkdtempSync(join(tmpdir(), 'kpng-'));
  t.teardown(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

/** Symbolic links in tests. */

/**
 * Why a test that needs symbolic links is skipped; false where this user can make them. On Windows not
 * everybody may, and Wine says that it has made one and has not.
 */
export const NO_LINKS: string | false = canLink()
  ? false
  : 'only on linux, or where symbolic links can be made';

function canLink(): boolean {
  const folder = mkdtempSync(join(tmpdir(), 'kpng-links-'));
  try {
    symlinkSync('target', join(folder, 'link'));
    return lstatSync(join(folder, 'link')).isSymbolicLink();
  } catch {
    return false;
  } finally {
    rmSync(folder, { recursive: true });
  }
}
