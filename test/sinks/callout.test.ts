/** The sink with real programs: shell scripts of a few lines. */
import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { CalloutSink, type CalloutOptions } from '../../src/sinks/callout.ts';
import { STDERR_TAIL, TERM_GRACE_MS } from '../../src/sinks/callout.ts';
import { calloutEnded } from '../../src/sinks/events.ts';
import { stateJson } from '../../src/sinks/json.ts';
import type { LocalChange } from '../../src/store/local-view.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { collect } from '../support/sockets.ts';
import { until } from '../support/until.ts';
import { entry, TestView } from '../support/messages.ts';

if (process.platform === 'win32') t.plan(0, 'the programs are shell scripts');

/** The state of these services. */
function state(...keys: string[]): LocalChange {
  const view = new TestView();
  for (const key of keys) view.set(entry(key, {}, {}));
  return { view, changed: new Set(keys) };
}

function textOf({ view }: LocalChange): string {
  return [...stateJson(view)].join('');
}

/** A sink that runs a script with `$OUT` as a folder of its own, and what it reports. */
function rig(t: Test, script: string, options: Partial<CalloutOptions> = {}) {
  const folder = t.testdir({});
  const program = join(folder, 'callout');
  const source = `#!/bin/sh\nOUT='${folder}'\n${script}\n`;
  writeFileSync(program, source);
  chmodSync(program, 0o755);
  let printed = '';
  const events = collect(t, calloutEnded);
  const sink = new CalloutSink({
    program,
    timeoutMs: 0,
    maxOutput: 1024 * 1024,
    write: async (output) => {
      printed += Buffer.from(output).toString();
    },
    ...options,
  });
  t.teardown(() => sink.destroy());
  const read = (name: string): string => {
    const path = join(folder, name);
    return existsSync(path) ? readFileSync(path, 'utf8') : '';
  };
  return { sink, program, events, read, printed: () => printed };
}

/** A process that is there, and has not ended. */
function runs(pid: string): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${Number(pid)}/status`, 'utf8'));
  } catch {
    return false;
  }
}

t.test('the program reads the state at every sync, and its output is printed', async (t) => {
  const { sink, printed, events } = rig(t, 'cat');
  const [first, second] = [state('d/a', 'd/b'), state('d/b')];
  for (const change of [first, second, second]) await sink.sync(change);
  t.equal(printed(), [first, second, second].map((change) => `${textOf(change)}\n`).join(''));
  t.match(events[0], { result: 'ok', error: undefined, stderr: '' });
});

t.test('a large state arrives whole, and a program reads what it wants of it', async (t) => {
  const change = state(...Array.from({ length: 20_000 }, (_, index) => `d/service-${index}`));
  const text = textOf(change);
  process.env['KPNG_TEST'] = 'yes';
  t.teardown(() => delete process.env['KPNG_TEST']);
  const script = 'wc -c | tr -d " "; head -n 1 /dev/stdin; echo "$# $PWD $KPNG_TEST"';
  const { sink, printed } = rig(t, script);
  await sink.sync(change);
  const [length, first, words] = printed().split('\n');
  t.equal(length, `${Buffer.byteLength(text)}`);
  t.equal(first, text.slice(0, text.indexOf('\n')), 'opened by name, it is read from the start');
  t.equal(words, `0 ${process.cwd()} yes`, 'no arguments, our folder and our environment');
});

t.test('another exit code, or a signal, fails the sync and drops the output', async (t) => {
  const { sink, program, printed, events } = rig(t, 'echo half; echo "no such chain" >&2; exit 3');
  await t.rejects(sink.sync(state('d/a')), {
    code: 'KPNG_CALLOUT_FAILED',
    message: `${program} ended with code 3`,
    retried: true,
  });
  t.equal(printed(), '');
  t.match(events, [{ program, result: 'exit', stderr: 'no such chain' }]);
  t.equal(events[0]?.error?.code, 'KPNG_CALLOUT_FAILED');
  const killed = rig(t, 'kill -USR1 $$');
  await t.rejects(killed.sink.sync(state()), { message: /was killed by SIGUSR1$/ });
  t.equal(killed.events[0]?.result, 'signal');
});

t.test('the end of a long standard error is kept, in whole characters', async (t) => {
  const half = STDERR_TAIL / 2;
  const { sink, events } = rig(t, `{ printf 'ä%.0s' $(seq ${half}); printf x; } >&2; exit 1`);
  await t.rejects(sink.sync(state('d/a')));
  t.equal(events[0]?.stderr, `…${'ä'.repeat(half - 1)}x`);
});

t.test('a missing or non-executable program is named', async (t) => {
  const missing = rig(t, '', { program: '/no/such/program' });
  await t.rejects(missing.sink.sync(state()), {
    code: 'KPNG_CALLOUT_FAILED',
    message: '/no/such/program could not be started: there is no such program',
  });
  t.equal(missing.events[0]?.result, 'start');
  // Node throws this instead of emitting it.
  const inFile = rig(t, '', { program: `${import.meta.filename}/program` });
  await t.rejects(inFile.sink.sync(state()), { message: /could not be started: .*ENOTDIR/ });
  const plain = rig(t, '');
  chmodSync(plain.program, 0o644);
  await t.rejects(plain.sink.sync(state()), {
    message: /could not be started: it may not be exec/,
  });
});

for (const [what, script, message, stderr] of [
  [
    'the program and its children get TERM',
    'trap "echo bye >&2; exit 0" TERM; sh -c "echo \\$\\$ >\'$OUT/pid\'; exec sleep 1000" & wait',
    /timed out after 5s$/,
    'bye',
  ],
  [
    'a program that ignores TERM is killed',
    'trap "" TERM; echo $$ >"$OUT/pid"; while :; do sleep 1000; done',
    /timed out after 5s$/,
    undefined,
  ],
  [
    'a process that left the group cannot delay the run',
    'setsid sh -c \'echo $$ >"$0/pid"; exec sleep 1000\' "$OUT" &',
    /a process that it started, timed out/,
    undefined,
  ],
] as const) {
  t.test(`on a timeout, ${what}`, async (t) => {
    const clock = new FakeClock();
    const { sink, events, read } = rig(t, script, { clock, timeoutMs: 5000 });
    const done = t.rejects(sink.sync(state()), { code: 'KPNG_CALLOUT_FAILED', message });
    await until(() => read('pid').endsWith('\n'));
    t.teardown(() => runs(read('pid')) && process.kill(Number(read('pid')), 'SIGKILL'));
    t.ok(runs(read('pid')));
    clock.advance(4999);
    t.equal(events.length, 0);
    clock.advance(1);
    if (stderr === undefined) clock.advance(TERM_GRACE_MS);
    await done;
    const durationMs = stderr === undefined ? 5000 + TERM_GRACE_MS : 5000;
    t.match(events, [{ result: 'timeout', stderr: stderr ?? '', durationMs }]);
    t.equal(clock.pending, 0, 'no one waits any more');
    if (!what.includes('left the group')) await until(() => !runs(read('pid')));
  });
}

t.test('a program that prints without end is killed, and nothing is printed', async (t) => {
  const { sink, events, printed } = rig(t, 'yes', { maxOutput: 100_000 });
  await t.rejects(sink.sync(state()), { message: /printed more than 100000 bytes$/ });
  t.equal(events[0]?.result, 'output');
  t.equal(printed(), '');
});

t.test('destroy kills the program and starts no other', async (t) => {
  const { sink, events, read } = rig(t, 'echo $$ >"$OUT/pid"; sleep 1000');
  const syncing = sink.sync(state('d/a'));
  await until(() => read('pid').endsWith('\n'));
  await sink.destroy();
  t.notOk(runs(read('pid')));
  await syncing;
  t.match(events, [{ result: 'stopped', error: undefined }]);
  await sink.sync(state('d/b'));
  t.equal(events.length, 1);
});

t.test('a write that fails fails the sync; one that hangs does not hold up destroy', async (t) => {
  const full = rig(t, 'echo', { write: () => Promise.reject(new Error('disk full')) });
  await t.rejects(full.sink.sync(state()), /disk full/);
  const stuck = rig(t, 'echo', { write: () => new Promise(() => {}) });
  void stuck.sink.sync(state());
  await until(() => stuck.events.length === 1);
  await stuck.sink.destroy();
});
