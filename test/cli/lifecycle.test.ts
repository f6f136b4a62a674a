import { EventEmitter } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import {
  CONSOLE_CLOSED_MS,
  meaningOfHangUp,
  watchProcess,
  type HangUp,
  type StopReason,
  setOomScore,
  drain,
  remainingOf,
  type Remaining,
} from '../../src/cli/lifecycle.ts';
import { newCounters } from '../../src/proxysocket/counters.ts';
import type { ServicePortSnapshot } from '../../src/proxysocket/engine.ts';
import { captureLog } from '../support/captured-log.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { tableRows } from '../support/markdown.ts';

async function setup(hangUp: HangUp = 'read-again') {
  const process = Object.assign(new EventEmitter(), {
    exits: [] as number[],
    exit(code: number) {
      this.exits.push(code);
    },
  });
  const stops: StopReason[] = [];
  const { log, lines } = await captureLog();
  watchProcess({ process, log, hangUp, onStop: (reason) => stops.push(reason) });
  return { process, stops, lines };
}

t.test(
  'the first signal stops gracefully, with all the time of the flags; the second at once',
  async (t) => {
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGQUIT', 'SIGBREAK']) {
      const { process, stops, lines } = await setup();
      process.emit(signal, signal);
      t.same([stops, process.exits], [[{ logFields: { signal } }], []], signal);
      process.emit('SIGINT', 'SIGINT');
      t.same([stops.length, process.exits], [1, [1]]);
      t.match(lines(), [{ level: 'warn', msg: /exiting at once/, signal: 'SIGINT' }]);
    }
  },
);

t.test('HUP ends the program where it means so, before Windows does, or reads again', async (t) => {
  const logFields = { signal: 'SIGHUP' };
  const withinMs = CONSOLE_CLOSED_MS;
  t.ok(withinMs < 5000, 'Windows waits for five seconds');
  for (const [platform, atTerminal, stopped] of [
    ['win32', false, { logFields, withinMs }],
    ['win32', true, { logFields, withinMs }],
    ['linux', true, { logFields }],
    ['linux', false, undefined],
  ] as const) {
    const { process, stops, lines } = await setup(meaningOfHangUp(platform, atTerminal));
    process.emit('SIGHUP', 'SIGHUP');
    t.same([stops, process.exits], [stopped === undefined ? [] : [stopped], []]);
    t.match(lines(), stopped === undefined ? [{ level: 'info', msg: /SIGHUP ignored/ }] : []);
  }
});

t.test('docs/reference/command-line.md has every signal', async (t) => {
  const { process } = await setup();
  const page = join(import.meta.dirname, '../../docs/reference/command-line.md');
  const documented = tableRows(readFileSync(page, 'utf8'), 'Signals').map(([name]) => name);
  const handled = process
    .eventNames()
    .map(String)
    .filter((name) => name.startsWith('SIG'));
  t.ok(handled.length >= 5);
  for (const name of [...handled, 'SIGUSR1', 'SIGPIPE', 'SIGKILL', 'SIGUSR2']) {
    t.match(documented.join(), new RegExp(`\\b${name.slice(3)}\\b`));
  }
});

t.test('an uncaught error is logged with its stack and ends the program with code 1', async (t) => {
  for (const event of ['uncaughtException', 'unhandledRejection']) {
    const { process, lines } = await setup();
    process.emit(event, Object.assign(new Error('a mistake'), { code: 'KPNG_X' }));
    t.same(process.exits, [1], event);
    t.match(lines(), [
      { level: 'error', err: 'a mistake', code: 'KPNG_X', stack: /lifecycle\.test/ },
    ]);
  }
  const { process, lines } = await setup();
  process.emit('unhandledRejection', 'just text');
  t.match(lines(), [{ level: 'error', err: 'just text' }]);
});

t.test('what is left is counted by kind', async (t) => {
  const servicePort = (protocol: 'TCP' | 'UDP', active: number): ServicePortSnapshot => {
    const counters = { ...newCounters(), active };
    return { name: `ns/${protocol}`, protocol, listeners: [], endpoints: 1, counters };
  };
  const all = [servicePort('TCP', 2), servicePort('UDP', 4), servicePort('TCP', 1)];
  t.same(remainingOf(all), { connections: 3, sessions: 4 });
});

async function draining(timeoutMs: number, remaining?: () => Remaining) {
  const clock = new FakeClock();
  const { log, lines } = await captureLog();
  const work = Promise.withResolvers<void>();
  const outcome = drain(work.promise, { log, clock, timeoutMs, remaining });
  return { clock, lines, work, outcome };
}

t.test(
  'a drain is reported at its start, repeatedly while connections last, and at its limit',
  async (t) => {
    let connections = 3;
    const { clock, lines, outcome } = await draining(10_000, () => {
      connections -= 1;
      return { connections: Math.max(0, connections), sessions: 0 };
    });
    for (let second = 0; second < 10; second += 1) clock.advance(1000);
    await outcome;
    t.match(lines(), [
      { msg: 'Waiting for connections to end', connections: 2, sessions: 0, cutIn: '10s' },
      { connections: 1, cutIn: '8s' },
      { level: 'warn', msg: /^Drain timeout reached/, drainTimeout: '10s', connections: 0 },
    ]);
    t.equal(lines().length, 3, 'no line when nothing is left');
    // Twice a minute at least, once a second at most.
    for (const [timeoutMs, passed, reports] of [
      [3_600_000, 30_000, 2],
      [1500, 999, 1],
    ] as const) {
      const each = await draining(timeoutMs, () => ({ connections: 1, sessions: 0 }));
      each.clock.advance(passed);
      t.equal(each.lines().length, reports);
      each.work.resolve();
      await each.outcome;
      t.equal(each.clock.pending, 0, 'nothing is reported after the end');
    }
    const failing = await draining(1000);
    failing.work.reject(new Error('no'));
    await t.rejects(failing.outcome, { message: 'no' });
    t.equal(failing.clock.pending, 0);
  },
);

t.test(
  'the OOM score is what the flag says; a value that the kernel refuses is a warning',
  { skip: process.platform !== 'linux' && 'only on linux' },
  async (t) => {
    const { log, lines } = await captureLog();
    const score = (): number => Number(readFileSync('/proc/self/oom_score_adj', 'utf8'));
    const before = score();
    await setOomScore(undefined, log);
    t.equal(score(), before);
    // Raising it needs no privilege; it stays so for this test's process only.
    const higher = Math.min(before + 1, 1000);
    await setOomScore(higher, log);
    t.equal(score(), higher);
    t.same(lines(), []);
    await setOomScore(1001, log);
    t.match(lines(), [{ level: 'warn', oomScoreAdj: 1001, code: 'EINVAL' }]);
  },
);
