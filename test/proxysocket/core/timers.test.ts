import { EndpointRecord } from '../../../src/roundrobin/record.ts';
import { EndpointIndex } from '../../../src/proxysocket/core/endpoint-index.ts';
import {
  DeadlineQueue,
  IdleQueues,
  type Deadline,
  type Idle,
} from '../../../src/proxysocket/core/timers.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import * as fc from 'fast-check';
import t from 'tap';

t.test('DeadlineQueue: one timer, in order, and what was removed stays silent', (t) => {
  const clock = new FakeClock();
  const due: string[] = [];
  const queue = new DeadlineQueue<string>(clock, 100, (item) => due.push(item));
  queue.add('a');
  clock.advance(40);
  const b = queue.add('b');
  queue.add('c');
  t.equal(clock.pending, 1);
  clock.advance(59);
  t.same(due, []);
  clock.advance(1);
  t.same(due, ['a']);
  b.remove();
  b.remove();
  clock.advance(40);
  t.same(due, ['a', 'c']);
  t.equal(clock.pending, 0);
  t.end();
});

t.test('DeadlineQueue: after a pause of the loop sockets come first', (t) => {
  for (const pause of [0.5, 300]) {
    const base = new FakeClock();
    let late = 0;
    const clock = {
      now: () => base.now() + late,
      setTimer: (ms: number, callback: () => void) => base.setTimer(ms, callback),
    };
    const due: string[] = [];
    const looks: (() => void)[] = [];
    const queue = new DeadlineQueue<string>(clock, 100, (item) => due.push(item), {
      afterSockets: (callback) => looks.push(callback),
    });
    const answered = queue.add('answered meanwhile');
    queue.add('not answered');
    late = pause;
    base.advance(100);
    t.same(due, []);
    t.equal(base.pending, 0, 'no timer can come first');
    answered.remove();
    looks.pop()?.();
    t.same(due, ['not answered']);
    t.equal(base.pending, 0);
    t.equal(looks.length, 0);
  }
  t.end();
});

t.test('DeadlineQueue: by default that is with the next timer', (t) => {
  const base = new FakeClock();
  let late = 0;
  const clock = {
    now: () => base.now() + late,
    setTimer: (ms: number, callback: () => void) => base.setTimer(ms, callback),
  };
  const due: string[] = [];
  new DeadlineQueue<string>(clock, 100, (item) => due.push(item)).add('a');
  late = 50;
  base.advance(100);
  t.same(due, []);
  base.advance(1);
  t.same(due, ['a']);
  t.equal(base.pending, 0);
  t.end();
});

t.test('EndpointIndex: finds the connections of an endpoint', (t) => {
  const [one, two] = ['one', 'two'].map((text) => ({
    text,
    address: '',
    port: 1,
    family: 4 as const,
    record: new EndpointRecord(),
    recorded: undefined,
  }));
  if (one === undefined || two === undefined) throw new Error('unreachable');
  const index = new EndpointIndex<string>();
  t.same(index.of(one), []);
  const a = index.add(one, 'a');
  index.add(two, 'b');
  index.add(one, 'c');
  t.same(index.of(one), ['a', 'c']);
  a.remove();
  a.remove();
  t.same(index.of(one), ['c']);
  t.same(index.of({ ...one }), [], 'the object counts, not what it says');
  t.same(index.all(), ['b', 'c']);
  t.end();
});

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

t.test('a queue with many deadlines is not checked for each of them', async (t) => {
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
  'property: no one expires early, no one much too late, and the oldest is the oldest',
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
              subject.queues.touch(entry);
              usedAt.set(entry, subject.clock.now());
            } else {
              subject.queues.remove(entry);
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
          const found = subject.queues.oldest();
          if (usedAt.size === 0 ? found !== undefined : found?.idle?.since !== oldest) {
            throw new Error(`oldest is ${found?.name}`);
          }
          const limits = new Set([...usedAt.keys()].map(({ limit }) => limit));
          if (subject.clock.pending < limits.size) throw new Error('a queue has no timer');
        }
      }),
      { interruptAfterTimeLimit: 3000, markInterruptAsFailure: false, numRuns: 500 },
    );
    t.pass();
  },
);

t.test('a higher limit counts when the old one is over', async (t) => {
  const { queues, clock, expired } = new Subject();
  const entry = new Entry('a', 1000);
  queues.touch(entry);
  entry.limit = 3000;
  clock.advance(2999);
  t.same(expired, []);
  t.equal(queues.oldest(), entry);
  clock.advance(1);
  t.same(expired, ['a']);
});
