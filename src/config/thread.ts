import { KpngError, messageOf } from '../errors.ts';
import { threadModule } from '../util/bundle.ts';
import { callThread } from '../util/call-thread.ts';
import type { ReadDocuments } from './documents.ts';
import { CONFIG_LIMITS } from './limits.ts';

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
