/** The tests without programs and waiting, in one process: loading tap for each file takes longer than most of them. */
import { globSync } from 'node:fs';
import { join } from 'node:path';

const TEST = join(import.meta.dirname, '..');
const FOLDERS = 'api,config,portal,proxier,roundrobin,service,sinks,store,util,vectors';

for (const file of globSync(`{${FOLDERS}}/**/*.test.ts`, { cwd: TEST }).sort()) {
  await import(join(TEST, file));
}
