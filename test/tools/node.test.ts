import t from 'tap';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, constants, existsSync } from 'node:fs';
import { join } from 'node:path';

const LAUNCHER = join(import.meta.dirname, '../../tools/node.cjs');

interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly output: string;
}

/** Runs the launcher with a Node; `onOutput` gets what it prints, and a way to send a signal. */
async function launch(
  node: string,
  args: readonly string[],
  onOutput: (text: string, kill: (signal: NodeJS.Signals) => void) => void = () => {},
): Promise<Ended> {
  const child = spawn(node, [LAUNCHER, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  const keep = (text: string): void => {
    output += text;
    onOutput(output, (signal) => child.kill(signal));
  };
  child.stdout.setEncoding('utf8').on('data', keep);
  child.stderr.setEncoding('utf8').on('data', keep);
  const [code, signal] = (await once(child, 'close')) as [number | null, NodeJS.Signals | null];
  return { code, signal, output };
}

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
  const { code, output } = await launch(other, [script, 'a']);
  t.equal(code, 0, output);
  const seen = JSON.parse(output) as { argv: string[]; node: string };
  t.same(seen.argv, [script, 'a']);
  t.not(seen.node, other);
  t.ok(existsSync(seen.node));
  t.equal((await launch(other, [script, 'fail'])).code, 7);
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
    const { code, output } = await launch(otherNode(folder), [script], (text, kill) => {
      if (text === 'waiting\n') kill('SIGTERM');
    });
    t.same({ code, output }, { code: 5, output: 'waiting\nending\n' });
  },
);
