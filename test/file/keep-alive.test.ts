import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import t from 'tap';

const href = (path: string): string =>
  JSON.stringify(new URL(`../../src/${path}`, import.meta.url).href);
const PROGRAM = `
import { FileSource } from ${href('file/source.ts')};
import { fileReadFailed } from ${href('file/events.ts')};
import { GlobalStore } from ${href('store/global-store.ts')};
fileReadFailed.subscribe(() => process.stdout.write('waiting\\n'));
const abort = new AbortController();
const store = new GlobalStore({ hasher: undefined });
store.onChange(() => {
  process.stdout.write('loaded\\n');
  abort.abort();
});
await new FileSource({ path: process.argv[1] }).feed(store, abort.signal);
process.stdout.write('done\\n');
`;

t.test(
  'a source that waits for its file keeps the process alive, and lets it go at the end',
  async (t) => {
    const path = join(t.testdir({}), 'state.yaml');
    const child = spawn(process.execPath, ['--input-type=module', '-e', PROGRAM, path], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    t.teardown(() => child.kill('SIGKILL'));
    const exited = once(child, 'exit');
    const said: string[] = [];
    for await (const line of createInterface(child.stdout)) {
      said.push(line);
      if (line === 'waiting') await writeFile(path, 'services: []\n');
    }
    t.strictSame(said, ['waiting', 'loaded', 'done']);
    t.strictSame(await exited, [0, null]);
  },
);
