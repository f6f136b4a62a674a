/** The benchmark of data, as far as it can be wrong: that it measures, and that it leaves nothing. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import type { DataReport } from '../../bench/data/result.ts';
import { systemExec } from '../../src/portal/exec.ts';
import { until } from '../../examples/support/until.ts';
import { shortDir } from '../support/short-dir.ts';

const MAIN = join(import.meta.dirname, '../../bench/main.ts');

/** The load that needs no other package, and no more than a second for each peer. */
const SHORT = ['--only', 'udp-64', '--rounds', '1', '--seconds', '1', '--idle', '100'];

interface Run {
  readonly child: ChildProcess;
  readonly json: string;
  output(): string;
}

function start(t: Test, flags: readonly string[]): Run {
  const json = join(shortDir(t), 'result.json');
  const child = spawn(process.execPath, [MAIN, 'data', ...SHORT, ...flags, '--json', json], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => (output += text));
  }
  return { child, json, output: () => output };
}

/** Namespaces of this run. */
async function namespaces({ child }: Run): Promise<string[]> {
  const { stdout } = await systemExec({ file: 'ip', args: ['netns', 'list'] });
  return stdout.split('\n').filter((line) => line.startsWith(`kpngbench-${child.pid}-`));
}

/** Processes in them. */
async function inhabitants(names: readonly string[]): Promise<number[]> {
  const lists = await Promise.all(
    names.map((name) =>
      systemExec({ file: 'ip', args: ['netns', 'pids', name.split(' ')[0] ?? ''] }),
    ),
  );
  return lists.flatMap(({ stdout }) => stdout.split('\n').filter(Boolean).map(Number));
}

function isAlive(pid: number): boolean {
  try {
    // A process that is gone and was not waited for yet has no command line.
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8') !== '';
  } catch {
    return false;
  }
}

t.test('measures both engines and the kernel, and names missing tools', async (t) => {
  const run = start(t, [
    '--peers',
    'direct,node,linux,kube-proxy,dnat',
    '--peer',
    'kube-proxy=/bin/false',
  ]);
  const [code] = (await once(run.child, 'close')) as [number];
  t.equal(code, 0, run.output());
  const report = JSON.parse(readFileSync(run.json, 'utf8')) as DataReport;
  t.same(
    report.peers.map(({ word }) => word),
    ['direct', 'node', 'linux', 'dnat'],
  );
  t.match(report.missing, [{ peer: 'kube-proxy', why: 'false has ended with code 1' }]);
  t.match(run.output(), /^missing: kube-proxy: /m);
  const results = report.loads[0]?.results ?? {};
  for (const [word, { rate, machine, own }] of Object.entries(results)) {
    t.ok(rate.median > 0 && machine.median > 0, word);
    t.equal(own === undefined, word === 'direct' || word === 'dnat', word);
  }
  t.ok((results['node']?.own?.median ?? 0) > 0, 'the CPU is that of the proxy');
  t.ok((report.idleConnection['linux'] ?? -1) >= 0);
  t.same(await namespaces(run), []);
});

t.test('interrupted or killed runs leave nothing behind', async (t) => {
  const interrupted = start(t, ['--peers', 'direct,node', '--seconds', '60']);
  let inside: number[] = [];
  const whenBusy = (run: Run): Promise<true> =>
    until(
      'servers, proxy and load run',
      async () => {
        inside = await inhabitants(await namespaces(run));
        return inside.length >= 4 ? true : undefined;
      },
      { within: 30_000 },
    );
  const allGone = (): Promise<true> =>
    until('no one is left', () => (inside.every((pid) => !isAlive(pid)) ? true : undefined));
  await whenBusy(interrupted);
  interrupted.child.kill('SIGINT');
  await once(interrupted.child, 'exit');
  t.same(await namespaces(interrupted), []);
  await allGone();

  const killed = start(t, ['--peers', 'direct,node', '--seconds', '60']);
  await whenBusy(killed);
  killed.child.kill('SIGKILL');
  await once(killed.child, 'exit');
  t.not((await namespaces(killed)).length, 0, 'no one can do anything then');
  const next = start(t, ['--peers', 'direct']);
  await once(next.child, 'close');
  t.same(await namespaces(killed), [], 'so the next run does');
  await allGone();
});
