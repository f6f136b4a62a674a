import t from 'tap';
import { SKIP_MS } from '../../src/roundrobin/skip.ts';
import { CLIENT_IP, endpoint, Subject } from '../support/balancer.ts';

const [A, B, C] = ['10.0.0.1:80', '10.0.0.2:80', '10.0.0.3:80'] as const;
const A6 = '[fd00::1]:80';

t.test('an endpoint that is drained is present, not gone', async (t) => {
  const subject = new Subject({ affinity: CLIENT_IP });
  subject.set(A, B);
  const drained = subject.pick('1.0.0.1');
  t.equal(drained?.text, A);
  t.same(subject.set(endpoint(A, 'neither'), B), [], 'nothing is gone');
  t.equal(subject.balancer.size, 2);
  t.equal(subject.next('1.0.0.1'), B, 'the client that was bound to it moves on');
  subject.set(A, B);
  t.equal(subject.member(A), drained, 'the same object stands for it when it is back');
  t.equal(subject.next('1.0.0.1'), B, 'and the client stays where it is');
});

t.test(
  'families: endpoints of the listener come first, the other ones when there are none',
  async (t) => {
    const subject = new Subject();
    subject.set(A, B, endpoint('fd00::1:80'));
    t.same(
      [1, 2, 3].map(() => subject.for('internal', 4)),
      [A, B, A],
    );
    t.same(
      [1, 2].map(() => subject.for('internal', 6)),
      [A6, A6],
    );
    subject.set(A, B);
    t.same(
      [1, 2].map(() => subject.for('internal', 6)),
      [B, A],
      'in the same turn as the others',
    );
    subject.set(endpoint('fd00::1:80', 'external'), A);
    t.equal(subject.for('internal', 6), A, 'none of its family for this traffic');
    t.equal(subject.for('external', 6), A6);
  },
);

t.test(
  'an endpoint that failed is skipped, for longer each time, until one connection is made',
  async (t) => {
    const subject = new Subject();
    subject.set(A, B);
    const skippedFor = (): number => {
      subject.fail(A);
      let ms = 0;
      while (subject.many(2).every((text) => text === B)) {
        ms += 500;
        subject.clock.advance(500);
        if (ms > 60_000) throw new Error('it never comes back');
      }
      return ms;
    };
    t.same([1, 2, 3, 4, 5, 6, 7].map(skippedFor), [...SKIP_MS, 30_000]);
    subject.balancer.connected(subject.member(A));
    t.equal(skippedFor(), 1000, 'starts again at the shortest time');
  },
);

t.test('failures of attempts made before do not make it longer', async (t) => {
  const subject = new Subject();
  subject.set(A, B);
  subject.fail(A, A, A, A);
  subject.clock.advance(1000);
  t.ok(subject.many(2).includes(A));
});

t.test('when all are skipped they are used all the same, in turn', async (t) => {
  const subject = new Subject();
  subject.set(A, B);
  subject.fail(B, A);
  t.same(subject.many(4), [B, A, B, A]);
  const only = new Subject();
  only.set(A);
  only.fail(A);
  t.same(only.many(2), [A, A]);
});

t.test('skipping one kind of traffic or family does not count for another', async (t) => {
  const subject = new Subject();
  subject.set(endpoint(A, 'external'), endpoint(B, 'both'), endpoint('fd00::1:80'));
  subject.fail(B);
  t.equal(subject.for('external'), A);
  t.equal(subject.for('internal'), B, 'the only one for internal traffic');
  t.equal(subject.for('internal', 6), A6);
});

t.test(
  'a client whose endpoint fails for others moves to another one, and stays there',
  async (t) => {
    const subject = new Subject({ affinity: CLIENT_IP });
    subject.set(A, B);
    t.same(subject.many(['1', '2']), [A, B]);
    subject.fail(A);
    t.same(subject.many(['1', '2']), [B, B]);
    subject.clock.advance(60_000);
    t.same(subject.many(['1', '2']), [B, B], 'no way back when the endpoint is well again');
    subject.fail(B, A);
    t.equal(subject.next('1'), B, 'with every endpoint skipped the client keeps its own');
  },
);

t.test('a client keeps the endpoint that it had in another process, while it may', async (t) => {
  const subject = new Subject();
  subject.set(A, B, C);
  t.same([subject.next('1.0.0.1', { previous: C }), subject.next()], [C, A], 'no one loses a turn');
  t.equal(subject.next('1.0.0.1', { previous: '10.0.0.9:80' }), B, 'it is gone');
  subject.set(A, B, endpoint(C, 'external'));
  t.equal(subject.next('1.0.0.1', { previous: C }), A, 'it does not serve such traffic any more');
  subject.set(A, B, C);
  subject.fail(C);
  t.not(subject.next('1.0.0.1', { previous: C }), C, 'it refuses');
});

t.test('with session affinity the client is bound to it', async (t) => {
  const subject = new Subject({ affinity: CLIENT_IP });
  subject.set(A, B, C);
  t.equal(subject.next('1.0.0.1', { previous: C }), C);
  t.equal(subject.next('1.0.0.1'), C);
  t.equal(subject.next('1.0.0.1', { previous: B }), C, 'what it is bound to counts for more');
});
