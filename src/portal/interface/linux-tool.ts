/** Runs the program `ip`. */
import { ADDRESS_WRITE_MS, WRITE_TIMEOUT_MS } from '../bounds.ts';
import { ExecError, type Exec } from '../exec.ts';
import { readBatchErrors, type BatchErrors } from './linux-batch.ts';
import { ipFailure, saidFailure } from './linux-failure.ts';
import { readLinks, type Link, type Spelling } from './linux-list.ts';

/** What `ip` may print. A listing has about 160 bytes for each address. */
export const MAX_OUTPUT = 64 * 1024 * 1024;

/** A listing during which something changed is made again, so many times. */
const LISTINGS = 3;

/** The interfaces of the host with their addresses. Rejects with KPNG_PORTAL_*. */
export async function listLinks(exec: Exec, spelling: Spelling): Promise<Link[]> {
  const doing = 'listing the addresses of the host';
  for (let left = LISTINGS; ; left -= 1) {
    try {
      const { stdout, stderr } = await exec({
        file: 'ip',
        args: ['-j', '-d', 'address', 'show'],
        maxOutput: MAX_OUTPUT,
      });
      if (left > 1 && /Dump was interrupted/.test(stderr)) continue;
      return readLinks(stdout, spelling);
    } catch (cause) {
      throw ipFailure(cause, doing);
    }
  }
}

/** Runs a batch to its end and returns the lines that failed. Rejects when ip does not get to the end. */
export async function runBatch(
  exec: Exec,
  lines: readonly string[],
  doing: string,
): Promise<BatchErrors['lines']> {
  try {
    await exec({
      file: 'ip',
      args: ['-force', '-batch', '-'],
      stdin: `${lines.join('\n')}\n`,
      timeoutMs: WRITE_TIMEOUT_MS + lines.length * ADDRESS_WRITE_MS,
      maxOutput: MAX_OUTPUT,
    });
    return new Map();
  } catch (cause) {
    const isBatch = cause instanceof ExecError && cause.failure === 'exit';
    if (!isBatch) throw ipFailure(cause, doing);
    const errors = readBatchErrors(cause.stderr);
    if (errors.rest !== '' || errors.lines.size === 0) {
      throw saidFailure(errors.rest || cause.message, doing, cause);
    }
    return errors.lines;
  }
}
