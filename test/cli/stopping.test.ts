import t from 'tap';
import { drain, remainingOf, stopTimes, type Remaining } from '../../src/cli/stopping.ts';
import { newCounters } from '../../src/proxysocket/counters.ts';
import type { ServicePortSnapshot } from '../../src/proxysocket/engine.ts';
import { captureLog } from '../support/captured-log.ts';
import { FakeClock } from '../support/fake-clock.ts';

function servicePort(
  protocol: 'TCP' | 'UDP',
  active: number,
  draining = false,
): ServicePortSnapshot {
  return {
    name: `ns/${protocol}`,
    protocol,
    listeners: [],
    endpoints: 1,
    counters: { ...newCounters(), active },
    ...(draining && { draining }),
  };
}

async function setup(timeoutMs: number, remaining?: () => Remaining) {
  const clock = new FakeClock();
  const { log, lines } = await captureLog();
  const work = Promise.withResolvers<void>();
  const outcome = drain(work.promise, { log, clock, timeoutMs, remaining });
  return { clock, lines, work, outcome };
}

t.test('what is left is counted by kind, with what has lost its service', async (t) => {
  t.same(remainingOf([servicePort('TCP', 2), servicePort('UDP', 3), servicePort('TCP', 1, true)]), {
    connections: 3,
    sessions: 3,
  });
});

t.test('what ends in time is told at the begin only', async (t) => {
  const { lines, work, outcome, clock } = await setup(5000, () => ({
    connections: 1,
    sessions: 0,
  }));
  work.resolve();
  t.equal(await outcome, 'in time');
  clock.advance(60_000);
  t.match(lines(), [
    { msg: 'Waiting for connections to end', connections: 1, sessions: 0, cutIn: '5s' },
  ]);
  t.equal(lines().length, 1, 'nothing is told after the end');
});

t.test('what takes its time is told again and again, until nothing is left', async (t) => {
  let connections = 3;
  const { clock, lines, work, outcome } = await setup(10_000, () => {
    connections = Math.max(0, connections - 1);
    return { connections, sessions: 0 };
  });
  for (let second = 0; second < 8; second += 1) clock.advance(1000);
  t.match(
    lines().map(({ connections, cutIn }) => ({ connections, cutIn })),
    [
      { connections: 2, cutIn: '10s' },
      { connections: 1, cutIn: '8s' },
    ],
  );
  t.equal(lines().length, 2, 'no line when nothing is left');
  work.resolve();
  t.equal(await outcome, 'in time');
});

t.test('what outlasts the time is told with its number', async (t) => {
  const { clock, lines, outcome } = await setup(100, () => ({ connections: 7, sessions: 2 }));
  clock.advance(100);
  t.equal(await outcome, 'time is up');
  t.match(lines().at(-1), {
    level: 'warn',
    msg: 'Drain timeout reached; closing the remaining connections',
    drainTimeout: '100ms',
    connections: 7,
    sessions: 2,
  });
});

t.test(
  'long drains are told twice a minute at least, short ones once a second at most',
  async (t) => {
    const hour = await setup(3_600_000, () => ({ connections: 1, sessions: 0 }));
    hour.clock.advance(30_000);
    t.equal(hour.lines().length, 2);
    const short = await setup(1500, () => ({ connections: 1, sessions: 0 }));
    short.clock.advance(999);
    t.equal(short.lines().length, 1);
  },
);

t.test('a failure is passed on, and the timers are gone', async (t) => {
  const { clock, lines, work, outcome } = await setup(1000);
  work.reject(new Error('no'));
  await t.rejects(outcome, { message: 'no' });
  clock.advance(5000);
  t.same(lines(), []);
});

t.test('where somebody ends the process soon, nothing waits for longer', async (t) => {
  const flags = { delayMs: 10_000, timeoutMs: 30_000 };
  t.same(stopTimes(flags, undefined), flags);
  t.same(stopTimes(flags, 4000), { delayMs: 0, timeoutMs: 4000 });
  t.same(stopTimes({ delayMs: 0, timeoutMs: 1000 }, 4000), { delayMs: 0, timeoutMs: 1000 });
});
