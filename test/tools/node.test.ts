import t, { type Test } from 'tap';
import { copyFileSync, constants, existsSync } from 'node:fs';
import { join } from 'node:path';
import { Running } from '../support/running.ts';

const LAUNCHER = join(import.meta.dirname, '../../tools/node.cjs');

/** Runs the launcher with a Node. */
const launch = (t: Test, node: string, ...args: string[]): Running =>
  new Running(t, node, [LAUNCHER, ...args]);

/** Another Node than the project's own, as an old one of the machine would be. */
function otherNode(folder: string): string {
  const file = join(folder, process.platform === 'win32' ? 'node.exe' : 'node');
  copyFileSync(process.execPath, file, constants.COPYFILE_FICLONE);
  return file;
}

const SCRIPT = `
  console.log(JSON.stringify({ argv: process.argv.slice(1), node: process.execPath }));
  if (process.argv[2] === 'fail') process.exitCode = 7;
`;

t.test('with another Node, the project’s own is started, and its exit passed on', async (t) => {
  const folder = t.testdir({ 'script.mjs': SCRIPT });
  const script = join(folder, 'script.mjs');
  const other = otherNode(folder);
  const launched = launch(t, other, script, 'a');
  t.same(await launched.ended, [0, null], launched.text);
  const seen = JSON.parse(launched.text) as { argv: string[]; node: string };
  t.same(seen.argv, [script, 'a']);
  t.not(seen.node, other);
  t.ok(existsSync(seen.node));
  t.same(await launch(t, other, script, 'fail').ended, [7, null]);
});

t.test(
  'TERM reaches the script through the launcher',
  { skip: process.platform === 'win32' && 'only on linux' },
  async (t) => {
    const waiting = `
    process.on('SIGTERM', () => { console.log('ending'); process.exit(5); });
    setInterval(() => {}, 1000);
    console.log('waiting');
  `;
    const folder = t.testdir({ 'script.mjs': waiting });
    const script = join(folder, 'script.mjs');
    const launched = launch(t, otherNode(folder), script);
    await launched.said(/^waiting$/m);
    launched.child.kill('SIGTERM');
    t.same(await launched.ended, [5, null]);
    t.equal(launched.text, 'waiting\nending\n');
  },
);
