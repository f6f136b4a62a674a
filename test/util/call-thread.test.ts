import { openSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import t from 'tap';
import { callThread } from '../../src/util/call-thread.ts';

t.test('a thread may close descriptors that it was given, without a warning', async (t) => {
  const dir = t.testdir({
    'thread.mjs': `
      import { closeSync } from 'node:fs';
      import { parentPort, workerData } from 'node:worker_threads';
      const warnings = [];
      process.on('warning', ({ message }) => warnings.push(message));
      closeSync(workerData);
      setImmediate(() => parentPort.postMessage(warnings));`,
  });
  const options = { name: 'test', data: openSync('/dev/null', 'r') };
  t.same(await callThread(pathToFileURL(join(dir, 'thread.mjs')), options), []);
});
