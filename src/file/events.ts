/** Events of the state file source, published on diagnostics channels. `path` is as configured. */
import type { KpngError } from '../errors.ts';
import { typedChannel } from '../util/channel.ts';
import type { Problems } from './problem.ts';

/** The file was read and is valid. Published before a sink gets the state. */
export const fileLoaded = typedChannel<{
  path: string;
  services: number;
  nodes: number;
  /** Number of parsed service items; the others were unchanged. */
  parsedItems: number;
  bytes: number;
  durationMs: number;
  /** Parts of the file without effect, unless the last valid content had them too. */
  newWarnings: Problems;
}>('file:loaded');

/**
 * The file has errors. The previous state is kept. Published once for each content, and again when a file that could
 * not be read comes back with the same errors.
 */
export const fileInvalid = typedChannel<{
  path: string;
  /** KPNG_STATE_FILE_INVALID; its message lists the problems. */
  error: KpngError;
  errors: Problems;
  /** Whether a previous state is still served; otherwise there is none yet. */
  served: boolean;
}>('file:invalid');

/**
 * The file cannot be read or completely parsed. It is retried; published once for each cause: KPNG_STATE_FILE_READ, or
 * KPNG_STATE_FILE_LIMIT when a limit of size, memory or time is exceeded.
 */
export const fileReadFailed = typedChannel<{ path: string; error: KpngError }>('file:read-failed');

/** The file can be read again and has its previous valid content. */
export const fileRecovered = typedChannel<{ path: string }>('file:recovered');
