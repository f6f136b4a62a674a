import * as fc from 'fast-check';
import t from 'tap';
import { IdleLanes, type IdleEntry, type IdleLane } from '../../../src/proxysocket/core/timers.ts';
import { FakeClock } from '../../support/fake-clock.ts';

class Entry implements IdleEntry<Entry> {
  lane: IdleLane<Entry> | undefined = undefined;
  older: Entry | undefined = undefined;
  newer: Entry | undefined = undefined;
  usedAt = 0;
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
  readonly lanes: IdleLanes<Entry>;

  constructor() {
    this.lanes = new IdleLanes<Entry>(
      this.clock,
      (entry) => entry.limit,
      (entry) => {
        this.expired.push(entry.name);
        this.lanes.remove(entry);
      },
    );
  }

  add(name: string, limit = 1000): Entry {
    const entry = new Entry(name, limit);
    this.lanes.touch(entry);
    return entry;
  }
}

t.test('entries expire in the order of their last use', async (t) => {
  const { lanes, clock, expired } = new Subject();
  const [a, b, c] = ['a', 'b', 'c'].map((name) => {
    const entry = new Entry(name, 1000);
    lanes.touch(entry);
    clock.advance(100);
    return entry;
  }) as [Entry, Entry, Entry];
  lanes.touch(a);
  t.equal(lanes.oldest(), b);
  lanes.remove(b);
  t.equal(lanes.oldest(), c);
  clock.advance(900);
  t.same(expired, ['c']);
  clock.advance(200);
  t.same(expired, ['c', 'a']);
  t.equal(lanes.oldest(), undefined);
});

t.test('there is one timer for each limit in use, and soon none without entries', async (t) => {
  const subject = new Subject();
  const entries = Array.from({ length: 100 }, (_, index) =>
    subject.add(`${index}`, index % 2 === 0 ? 1000 : 5000),
  );
  t.equal(subject.clock.pending, 2);
  for (const entry of entries) subject.lanes.remove(entry);
  for (const entry of entries) subject.lanes.remove(entry);
  subject.clock.advance(5000);
  t.equal(subject.clock.pending, 0);
});

t.test('a lane with many deadlines is not looked at for each of them', async (t) => {
  const subject = new Subject();
  for (let index = 0; index < 1000; index += 1) {
    subject.add(`${index}`, 30_000);
    subject.clock.advance(1);
  }
  let looks = 0;
  const setTimer = subject.clock.setTimer.bind(subject.clock);
  subject.clock.setTimer = (ms, callback) => {
    looks += 1;
    return setTimer(ms, callback);
  };
  subject.clock.advance(32_000);
  t.equal(subject.expired.length, 1000);
  t.ok(looks <= 3, `${looks} looks`);
});

t.test('a limit beyond what a timer can wait for does not expire at once', async (t) => {
  const subject = new Subject();
  const delays: number[] = [];
  const setTimer = subject.clock.setTimer.bind(subject.clock);
  subject.clock.setTimer = (ms, callback) => {
    delays.push(ms);
    return setTimer(ms, callback);
  };
  subject.add('patient', 2 ** 40);
  subject.clock.advance(2 ** 31);
  t.same(subject.expired, []);
  t.ok(delays.every((ms) => ms < 2 ** 31));
  subject.clock.advance(2 ** 40);
  t.same(subject.expired, ['patient']);
});

t.test(
  'property: nobody expires early, nobody much too late, and the oldest is the oldest',
  async (t) => {
    const limits = [80, 1000, 30_000];
    const step = fc.oneof(
      fc.record({ kind: fc.constant('touch' as const), entry: fc.nat(7) }),
      fc.record({ kind: fc.constant('remove' as const), entry: fc.nat(7) }),
      fc.record({ kind: fc.constant('advance' as const), ms: fc.integer({ min: 1, max: 3000 }) }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
        const subject = new Subject();
        const entries = Array.from({ length: 8 }, (_, index) => {
          return new Entry(`${index}`, limits[index % limits.length] ?? 0);
        });
        const usedAt = new Map<Entry, number>();
        for (const one of steps) {
          if (one.kind === 'advance') subject.clock.advance(one.ms);
          else {
            const entry = entries[one.entry] ?? new Entry('none', 1);
            if (one.kind === 'touch') {
              subject.lanes.touch(entry);
              usedAt.set(entry, subject.clock.now());
            } else {
              subject.lanes.remove(entry);
              usedAt.delete(entry);
            }
          }
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
          const found = subject.lanes.oldest();
          if (usedAt.size === 0 ? found !== undefined : found?.usedAt !== oldest) {
            throw new Error(`oldest is ${found?.name}`);
          }
          const lanes = new Set([...usedAt.keys()].map(({ limit }) => limit));
          if (subject.clock.pending < lanes.size) throw new Error('a lane has no timer');
        }
      }),
      { interruptAfterTimeLimit: 3000, markInterruptAsFailure: false, numRuns: 500 },
    );
    t.pass();
  },
);
