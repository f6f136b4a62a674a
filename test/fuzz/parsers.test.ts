/**
 * Parsers of outside text, given damaged samples: each has to return, or throw an error that it may throw, within
 * a time and memory budget. CONTRIBUTING.md lists all parsers and their targets; most have one in a test of
 * their own.
 */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import t from 'tap';
import { TARGETS } from '../support/fuzz-targets.ts';

/** For everything that a target keeps; the Kubernetes client library takes a third of it. */
const MEMORY_MB = 256;
/** For one target, on a loaded machine. Milliseconds. */
const LIMIT_MS = 60_000;

for (const { name } of TARGETS) {
  t.test(`${name}: damaged in any way`, async (t) => {
    const worker = new Worker(new URL('../support/fuzz-targets.ts', import.meta.url), {
      workerData: name,
      resourceLimits: { maxOldGenerationSizeMb: MEMORY_MB },
      execArgv: ['--disable-warning=ExperimentalWarning'],
    });
    t.teardown(() => worker.terminate());
    const [outcome] = (await once(worker, 'message', {
      signal: AbortSignal.timeout(LIMIT_MS),
    })) as [string];
    t.equal(outcome, 'held');
  });
}
