import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { join } from 'node:path';
import t from 'tap';
import { DIFFERENCES } from './differences.ts';

const root = join(import.meta.dirname, '..', '..');
const skip = process.platform !== 'linux' && 'only on linux';

t.test('what Wine does differently is right here, by the same scripts', { skip }, async (t) => {
  for (const { what, script } of DIFFERENCES) {
    const { stdout } = await promisify(execFile)(process.execPath, [join(root, script)]);
    t.equal(stdout, 'same\n', what);
  }
});
