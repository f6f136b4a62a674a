import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

interface TempFolder {
  readonly path: string;
  /** Removes it with all that is in it. Idempotent; done at the latest when the process exits. */
  remove(): void;
}

/** Makes a folder of its own for this process; `purpose` is a part of its name. */
export function tempFolder(purpose: string): TempFolder {
  const path = mkdtempSync(join(tmpdir(), `kpng-userspace-${purpose}-`));
  const remove = (): void => {
    process.off('exit', remove);
    rmSync(path, { recursive: true, force: true });
  };
  process.once('exit', remove);
  return { path, remove };
}
