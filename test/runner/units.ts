/** The tests without programs and waiting, in one process: loading tap for each file takes as long as most of them. */
import { globSync } from 'node:fs';
import { join } from 'node:path';

const TEST = join(import.meta.dirname, '..');

export const UNIT_FOLDERS =
  'api,config,portal,proxier,roundrobin,service,sinks,store,util,vectors'.split(',');

if (import.meta.main) {
  for (const file of globSync(`{${UNIT_FOLDERS.join(',')}}/**/*.test.ts`, { cwd: TEST }).sort()) {
    await import(join(TEST, file));
  }
}
