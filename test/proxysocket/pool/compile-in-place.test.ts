/** The ends of threads that make system calls, while V8 optimises these. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { linuxTest } from '../../support/linux-sys.ts';

const CHILD = join(import.meta.dirname, '../../support/ffi-workers-child.ts');
/** Without the flag, one of the first twenty kills the process as a rule. */
const WORKERS = 45;

linuxTest('threads do not take the process with them, however they end', async (t) => {
  const run = promisify(execFile)(process.execPath, [CHILD, String(WORKERS)], { env: {} });
  t.match(await run, { stdout: `${WORKERS} ended` });
});
