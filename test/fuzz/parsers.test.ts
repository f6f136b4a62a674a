/**
 * Parsers of outside text, given damaged samples: each has to return, or throw an error that it may throw, within
 * a time and memory budget. CONTRIBUTING.md lists all parsers and their targets; most have one in a test of
 * their own.
 */
import { on } from 'node:events';
import { Worker } from 'node:worker_threads';
import t from 'tap';
import { TARGETS } from './targets.ts';

/** For everything that the targets keep; the Kubernetes client library takes a third of it. */
const MEMORY_MB = 256;
/** For all targets, on a loaded machine. Milliseconds. */
const LIMIT_MS = 300_000;

t.test('each parser stands what is damaged in any way', async (t) => {
  const worker = new Worker(new URL('targets.ts', import.meta.url), {
    resourceLimits: { maxOldGenerationSizeMb: MEMORY_MB },
    execArgv: ['--disable-warning=ExperimentalWarning'],
  });
  t.teardown(() => worker.terminate());
  const outcomes = on(worker, 'message', { signal: AbortSignal.timeout(LIMIT_MS) });
  for (const { name } of TARGETS) {
    await t.test(name, async (t) => {
      const { value } = (await outcomes.next()) as IteratorYieldResult<[string]>;
      t.equal(value[0], 'held');
    });
  }
});
