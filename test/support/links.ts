/** Symbolic links in tests. */
import { lstatSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

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
