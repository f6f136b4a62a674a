import t, { type Test } from 'tap';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { isInstalled } from '../../bench/support/tools.ts';
import { containsShown } from '../support/run-page.ts';
import { blocksOf } from '../support/markdown.ts';
import { Running } from '../support/running.ts';

const MAIN = join(import.meta.dirname, '../../examples/demo/main.ts');
/** What the README shows of it. */
function shownInReadme(): string[] {
  const readme = readFileSync(join(import.meta.dirname, '../../README.md'), 'utf8');
  const block = blocksOf(readme).find(({ mark }) => mark.endsWith('demo.test.ts'));
  if (block === undefined) throw new Error('the README shows nothing of the demo');
  return block.text.split('\n\n').map((text) => text.trimEnd());
}

const startDemo = (t: Test, ...args: string[]): Running =>
  new Running(t, process.execPath, [MAIN, ...args]);

/** Takes a port for the time of the test, unless someone has it already. */
async function take(t: Test, host: string, port: number): Promise<void> {
  const server = createServer().listen(port, host);
  // `once` rejects when the server emits an error instead.
  const taken = await once(server, 'listening').then(
    () => true,
    () => false,
  );
  if (taken) t.teardown(() => server.close());
}

/** Runs a line of the last screen as a person would. */
async function shell(line: string): Promise<{ code: number | null; output: string }> {
  const child = spawn('bash', ['-c', line], { stdio: ['ignore', 'pipe', 'pipe'] });
  const output = child.stdout.toArray();
  child.stderr.resume();
  const [code] = (await once(child, 'close')) as [number | null];
  return { code, output: Buffer.concat(await output).toString() };
}

t.test(
  '--once ends with 0 after a tour in which all was well, also when ports are taken',
  async (t) => {
    await take(t, '127.0.0.1', 10_249);
    await take(t, '0.0.0.0', 10_256);
    await take(t, '127.77.0.10', 8080);
    const demo = startDemo(t, '--once');
    const [code] = await demo.ended;
    t.equal(code, 0, demo.text);
    t.match(demo.text, /alder 10 {3}birch 10 {3}cedar 10/);
    t.match(demo.text, /from 127\.77\.9\.1: \w+ 10\n/);
    t.match(demo.text, /300 new connections after the kill, 0 failed/);
    t.match(demo.text, /8 of 8 as they should be/);
    t.notMatch(demo.text, /✗/);
    for (const text of shownInReadme()) t.ok(containsShown(demo.text, text), text);
    t.notOk(demo.text.includes('\u001B'), 'no colours where there is no terminal');
  },
);

t.test(
  'without --once the proxy runs on, every line to try works, and INT ends it all',
  async (t) => {
    const demo = startDemo(t);
    await demo.said(/Ctrl-C ends it/);
    const lines = demo.text
      .split('\n')
      .flatMap((line) => /^ {2}\S.*? {3,}(.*(?:curl|node|top) .*)$/.exec(line)?.[1] ?? []);
    t.ok(lines.length >= 8, `lines to try: ${lines.length}`);
    const page = /status page: (\S+)/.exec(demo.text)?.[1] ?? '';
    t.match(await (await fetch(page)).text(), '<title>kpng-userspace</title>');
    const udp = await shell(lines.find((line) => line.startsWith('node')) ?? 'false');
    t.match(udp, { code: 0, output: /says hello/ });
    const skip = !isInstalled('curl') && 'needs curl';
    await t.test('each suggested command works', { skip }, async (t) => {
      const results = await Promise.all(lines.map(shell));
      for (const [index, line] of lines.entries()) {
        t.match(results[index], { code: 0, output: /\S/ }, line);
      }
    });

    const stateFile = /state file +(\S+)/.exec(demo.text)?.[1] ?? '';
    const state = readFileSync(stateFile, 'utf8');
    writeFileSync(stateFile, state.replace(/port: \d+/, 'port: 70000'));
    await demo.said(/70000 is not a port/);
    writeFileSync(stateFile, state);
    const pid = Number(/proxy +process (\d+)/.exec(demo.text)?.[1]);
    t.ok(existsSync(stateFile));
    demo.child.kill('SIGINT');
    const [code, signal] = await demo.ended;
    t.same([code, signal], [0, null], demo.text);
    t.notOk(existsSync(stateFile), 'its files are removed');
    t.throws(() => process.kill(pid, 0), { code: 'ESRCH' }, 'the proxy has ended');
  },
);

t.test('--help says what there is, and a wrong flag ends with 2', async (t) => {
  const [help, wrong] = [startDemo(t, '--help'), startDemo(t, '--onc')];
  t.same(await help.ended, [0, null]);
  t.match(help.text, /^npm run demo +.*\nnpm run demo -- --once +/);
  t.same(await wrong.ended, [2, null]);
  t.match(wrong.text, /'--onc'.*\n.*npm run demo -- --once/s);
});
