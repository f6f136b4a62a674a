import { KpngError, messageOf } from '../errors.ts';
import { readContent } from '../util/read-content.ts';
import { CONFIG_LIMITS } from './limits.ts';
import { threadModule } from '../util/bundle.ts';
import { callThread } from '../util/call-thread.ts';
import type { ReadDocuments } from './documents.ts';

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

const MODULE = threadModule('config-worker', 'worker', import.meta.url);

/**
 * Parses a file in a thread with limits on time and memory, so that clients do not have to wait. Rejects with
 * KPNG_CONFIG_INVALID.
 */
export async function readInThread(
  path: string,
  text: string,
  { module = MODULE, limitMs = CONFIG_LIMITS.maxParseMs }: { module?: URL; limitMs?: number } = {},
): Promise<ReadDocuments> {
  const maxBytes = CONFIG_LIMITS.maxParserBytes;
  const name = 'kpng-userspace configuration';
  try {
    return (await callThread(module, { name, data: text, limitMs, maxBytes })) as ReadDocuments;
  } catch (cause) {
    throw new KpngError('KPNG_CONFIG_INVALID', `${path}: ${messageOf(cause)}`, { cause });
  }
}
