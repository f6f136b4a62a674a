import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Test } from 'tap';

/** A directory with a path that is short enough for sockets. It goes away with the test. */
export function shortDir(t: Test): string {
  const path = mkdtempSync(join(tmpdir(), 'kpng-'));
  t.teardown(() => rmSync(path, { recursive: true, force: true }));
  return path;
}
