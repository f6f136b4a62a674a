import { KpngError } from '../errors.ts';
import { readContent } from '../util/read-content.ts';
import { CONFIG_LIMITS } from './limits.ts';

/** How errors name a configuration file. */
export const CONFIG_FILE = {
  name: 'the configuration',
  unreadable: 'KPNG_CONFIG_READ',
  tooLarge: 'KPNG_CONFIG_READ',
} as const;

/** The text of a configuration file. Rejects with KPNG_CONFIG_READ. */
export async function readConfigText(path: string): Promise<string> {
  const content = await readContent(path, CONFIG_LIMITS.maxFileBytes, CONFIG_FILE);
  if (content instanceof KpngError) throw content;
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(content.bytes);
  } catch (cause) {
    const message = `cannot read the configuration ${path}: it is not UTF-8 text`;
    throw new KpngError('KPNG_CONFIG_READ', message, { cause });
  }
}
