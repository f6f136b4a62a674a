import { IdleQueues, type Deadline, type Idle } from '../../../src/proxysocket/core/timers.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import * as fc from 'fast-check';
import t from 'tap';

class Entry implements Idle<Entry> {
  idle: Deadline<Entry> | undefined = undefined;
  readonly name: string;
  limit: number;

  constructor(name: string, limit: number) {
    this.name = name;
    this.limit = limit;
  }
}

class Subject {
  readonly clock = new FakeClock();
  readonly expired: string[] = [];
  readonly queues = new IdleQueues<Entry>(
    this.clock,
    (entry) => entry.limit,
    (entry) => this.expired.push(entry.name),
  );

  add(name: string, limit = 1000): Entry {
    const entry = new Entry(name, limit);
    this.queues.touch(entry);
    return entry;
  }
}

/** The times of the timers that are set from now on. */
function timersOf({ clock }: Subject): number[] {
  const delays: number[] = [];
  const setTimer = clock.setTimer.bind(clock);
  clock.setTimer = (ms, callback) => {
    delays.push(ms);
    return setTimer(ms, callback);
  };
  return delays;
}

t.test('a queue with many deadlines is not checked for each of them', async (t) => {
  const subject = new Subject();
  for (let index = 0; index < 1000; index += 1) {
    subject.add(`${index}`, 30_000);
    subject.clock.advance(1);
  }
  const timers = timersOf(subject);
  subject.clock.advance(32_000);
  t.equal(subject.expired.length, 1000);
  t.ok(timers.length <= 3, `${timers.length} looks`);
});

t.test('a limit beyond what a timer can wait for does not expire at once', async (t) => {
  const subject = new Subject();
  const timers = timersOf(subject);
  subject.add('patient', 2 ** 40);
  subject.clock.advance(2 ** 31);
  t.same(subject.expired, []);
  t.ok(timers.every((ms) => ms < 2 ** 31));
  subject.clock.advance(2 ** 40);
  t.same(subject.expired, ['patient']);
});

t.test('a shorter limit counts from the next use on, a longer one at once', async (t) => {
  const subject = new Subject();
  const shortened = subject.add('shortened', 30_000);
  shortened.limit = 1000;
  subject.clock.advance(20_000);
  subject.queues.touch(shortened);
  const extended = subject.add('extended', 2000);
  extended.limit = 60_000;
  subject.clock.advance(10_000);
  t.same(subject.expired, ['shortened']);
  subject.clock.advance(60_000);
  t.same(subject.expired, ['shortened', 'extended']);
});

t.test('property: none expires early or much too late; the oldest is the oldest', async (t) => {
  const limits = [80, 1000, 30_000];
  const step = fc.record({
    kind: fc.constantFrom('touch', 'remove', 'advance'),
    entry: fc.nat(7),
    ms: fc.integer({ min: 1, max: 3000 }),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
      const subject = new Subject();
      const entries = Array.from({ length: 8 }, (_, index) => {
        return new Entry(`${index}`, limits[index % limits.length] ?? 0);
      });
      const usedAt = new Map<Entry, number>();
      for (const one of steps) {
        const entry = entries[one.entry] ?? new Entry('none', 1);
        if (one.kind === 'advance') subject.clock.advance(one.ms);
        else subject.queues[one.kind](entry);
        if (one.kind === 'touch') usedAt.set(entry, subject.clock.now());
        if (one.kind === 'remove') usedAt.delete(entry);
        const now = subject.clock.now();
        for (const name of subject.expired.splice(0)) {
          const entry = entries[Number(name)] ?? new Entry('none', 1);
          if (now - (usedAt.get(entry) ?? now) < entry.limit) throw new Error(`${name} is early`);
          usedAt.delete(entry);
        }
        for (const [entry, used] of usedAt) {
          const grain = Math.min(entry.limit / 8, 1000);
          if (now - used > entry.limit + grain) throw new Error(`${entry.name} is late`);
        }
        const oldest = Math.min(...usedAt.values());
        const found = subject.queues.oldest();
        if (usedAt.size === 0 ? found !== undefined : found?.idle?.since !== oldest) {
          throw new Error(`oldest is ${found?.name}`);
        }
        const limits = new Set([...usedAt.keys()].map(({ limit }) => limit));
        if (subject.clock.pending < limits.size) throw new Error('a queue has no timer');
      }
    }),
    { seed: 1, interruptAfterTimeLimit: 3000, markInterruptAsFailure: false, numRuns: 500 },
  );
  t.pass();
});
