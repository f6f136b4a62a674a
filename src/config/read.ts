import { readFile, stat } from 'node:fs/promises';
import { KpngError } from '../errors.ts';
import { formatBytes } from '../util/bytes.ts';
import { fileErrorText } from '../util/file-error.ts';
import { CONFIG_LIMITS } from './limits.ts';

/** The text of a configuration file. Rejects with KPNG_CONFIG_READ. */
export async function readConfigText(path: string): Promise<string> {
  try {
    const stats = await stat(path);
    if (!stats.isFile()) throw new Error('it is not a regular file');
    if (stats.size > CONFIG_LIMITS.maxFileBytes) {
      throw new Error(`it is larger than ${formatBytes(CONFIG_LIMITS.maxFileBytes)}`);
    }
    return new TextDecoder('utf-8', { fatal: true }).decode(await readFile(path));
  } catch (cause) {
    throw new KpngError(
      'KPNG_CONFIG_READ',
      `cannot read the configuration ${path}: ${fileErrorText(cause)}`,
      { cause },
    );
  }
}
