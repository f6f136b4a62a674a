import { isDeepStrictEqual } from 'node:util';
import { KpngError, messageOf } from '../errors.ts';
import { systemClock, type Clock, type Timer } from './clock.ts';
import { typedChannel } from './channel.ts';
import { statusOf } from './read-content.ts';
import {
  dateProblem,
  readTls,
  type TlsFiles,
  type TlsFlags,
  type TlsMaterial,
} from './tls-files.ts';

/** The own certificate of a server has expired, or is not valid yet. Published once for each certificate. */
export interface CertificateOutdated {
  /** KPNG_TLS_FILE; its message names the file and the date. */
  error: KpngError;
}

export const certificateOutdated = typedChannel<CertificateOutdated>('tls:certificate-outdated');

/** Interval of the checks of the files. Milliseconds. */
export const TLS_POLL_MS = 10_000;

export interface FollowTlsOptions {
  readonly files: TlsFiles;
  readonly flags: TlsFlags;
  readonly material: TlsMaterial;
  /** The files have changed, and are valid. */
  readonly onChanged: (material: TlsMaterial) => void;
  /** They have changed, and cannot be used (KPNG_TLS_FILE). Called once for each different problem. */
  readonly onFailed: (error: KpngError) => void;
  readonly clock?: Clock | undefined;
}

/**
 * Polls TLS files for changes and re-reads them. Files that cannot be used, such as a certificate whose key has not
 * been replaced yet, change nothing and are read again at the next check. Returns a function that stops this.
 *
 * Checks time, size and inode of the files, since mounted secrets are replaced through a link in a parent directory,
 * for which the system sends no event.
 */
export function followTls(options: FollowTlsOptions): () => void {
  const { files, flags, onChanged, onFailed } = options;
  const clock = options.clock ?? systemClock;
  let material = options.material;
  let seen: string | undefined;
  let problem: string | undefined;
  let outdated: string | undefined;
  let ended = false;
  let timer: Timer | undefined;

  const checkDates = (): void => {
    const why = material.identity && dateProblem(material.identity.crt, Date.now());
    if (why === outdated) return;
    outdated = why;
    if (why === undefined) return;
    const error = new KpngError('KPNG_TLS_FILE', `${flags.crt} ${files.crt}: ${why}`);
    certificateOutdated.publish({ error });
  };
  const check = async (): Promise<void> => {
    const now = await signatureOf(files);
    if (now === seen && problem === undefined) return;
    seen = now;
    try {
      const latter = await readTls(files, flags);
      const changed = !ended && latter !== undefined && !isDeepStrictEqual(latter, material);
      if (changed) {
        onChanged(latter);
        material = latter;
      }
      problem = undefined;
    } catch (cause) {
      const error = asTlsError(cause);
      if (ended || error.message === problem) return;
      problem = error.message;
      onFailed(error);
    }
  };
  const schedule = (): void => {
    if (ended) return;
    checkDates();
    timer = clock.setTimer(TLS_POLL_MS, () => void check().finally(schedule));
  };
  schedule();
  return () => {
    ended = true;
    timer?.cancel();
  };
}

/** Unchanged as long as none of the files is replaced or written to. */
async function signatureOf({ key, crt, ca }: TlsFiles): Promise<string> {
  const each = [key, crt, ca].map(async (path = '') => (path === '' ? '' : statusOf(path)));
  return (await Promise.all(each)).join(' ');
}

function asTlsError(cause: unknown): KpngError {
  if (cause instanceof KpngError) return cause;
  return new KpngError('KPNG_TLS_FILE', messageOf(cause), { cause });
}
