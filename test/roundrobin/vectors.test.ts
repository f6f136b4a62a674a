/** The balancer vectors of kube-proxy's userspace mode: each kept, or different on purpose. */
import t from 'tap';
import { CLIENT_IP, endpoint, NONE, rotated, Subject } from '../support/balancer.ts';

const [S0, S1, S2] = ['10.0.0.1:80', '10.0.0.2:80', '10.0.0.3:80'] as const;
const [N0, N1] = ['10.0.1.1:80', '10.0.1.2:80'] as const;
const [c1, c2, c3, c4, c5, c6] = ['1.0.0.1', '1.0.0.2', '1.0.0.3', '1.0.0.4', '1.0.0.5', '1.0.0.6'];

t.test('B1 (kept): without endpoints there is no pick', async (t) => {
  const subject = new Subject();
  t.equal(subject.next(), 'none', 'a new service port');
  subject.set(S0);
  subject.set();
  t.equal(subject.next(), 'none', 'a service port that lost its endpoints');
  const sticky = new Subject({ affinity: CLIENT_IP });
  t.equal(sticky.next(c1), 'none');
  t.equal(sticky.balancer.affinityClients, 0, 'and nothing is remembered about the client');
});

t.test('B2 (kept): every service port goes round on its own', async (t) => {
  const p = new Subject();
  const q = new Subject();
  p.set(S0, S1, S2);
  q.set('10.0.0.1:90', '10.0.0.2:90', '10.0.0.3:90');
  t.same(p.many(4), [S0, S1, S2, S0]);
  t.same(q.many(4), ['10.0.0.1:90', '10.0.0.2:90', '10.0.0.3:90', '10.0.0.1:90']);
});

t.test(
  'B3 (kept): the same set in another order changes nothing, another set starts again',
  async (t) => {
    const subject = new Subject();
    subject.set(S0, S1, S2);
    t.equal(subject.next(), S0);
    t.same(subject.set(S2, S0, S1), []);
    t.same(subject.many(3), [S1, S2, S0]);
    t.same(subject.set(N0, N1).sort(), [S0, S1, S2]);
    t.same(subject.many(4), [N0, N1, N0, N1]);
    t.same(subject.set(), [N0, N1]);
    t.equal(subject.next(), 'none');
  },
);

t.test('B3 (different): a change in part does not shuffle everything again', async (t) => {
  const subject = new Subject();
  subject.set(S0, S1, S2);
  t.same(subject.many(1), [S0]);
  subject.set(N0, S0, S1, S2);
  t.same(subject.many(5), [S1, S2, S0, N0, S1], 'the turn continues, the new one comes last');
  subject.set(N0, S0, S1);
  t.same(subject.many(4), [S0, N0, S1, S0], 'the turn of one that is gone passes to the next');
});

t.test('B5 (kept): clients stick, whether affinity or the endpoints come first', async (t) => {
  const first = new Subject({ affinity: CLIENT_IP });
  first.set(S0, S1, S2);
  t.same(first.many([c1, c1, c2, c3, c2, c1, c3]), [S0, S0, S1, S2, S1, S0, S2]);

  const second = new Subject();
  second.set(S0, S1);
  second.balancer.setAffinity(CLIENT_IP);
  t.same(second.many([c1, c2, c3, c1, c2, c3]), [S0, S1, S0, S0, S1, S0], 'the third one shares');
});

t.test(
  'B6 (different): who loses an endpoint gets the next in turn, not one of a new shuffle',
  async (t) => {
    const subject = new Subject({ affinity: CLIENT_IP });
    subject.set(S0, S1, S2);
    t.same(subject.many([c1, c1, c2, c2, c3]), [S0, S0, S1, S1, S2]);
    t.same(subject.set(S0, S1), [S2]);
    t.same(subject.many([c3, c1, c2, c3]), [S0, S0, S1, S0], 'the two others keep theirs');
    subject.set(S0, S1, N0);
    t.same(subject.many([c1, c2, c3]), [S0, S1, S0], 'a new endpoint is for new clients only');
    t.same(subject.many([c4, c5, c6]), [S1, S0, N0], 'who come to it in its turn');
    t.same(subject.many([c4, c5, c6]), [S1, S0, N0]);
  },
);

t.test('B7 (different): a retry never goes back to what was tried in vain', async (t) => {
  const subject = new Subject({ affinity: CLIENT_IP });
  subject.set(S0, S1, S2);
  t.same(subject.many([c1, c2, c3]), [S0, S1, S2]);
  const [E1, E2, E3] = [subject.member(S0), subject.member(S1), subject.member(S2)];
  t.equal(subject.next(c1, { tried: [E1] }), S1, 'kube-proxy would try S0 again');
  t.equal(subject.next(c1, { tried: [E1, E2] }), S2);
  t.equal(subject.next(c2), S1, 'the others keep theirs');
  t.equal(subject.next(c1), S2, 'and the client stays with the last one it was sent to');
  t.equal(subject.next(c1, { tried: [E3] }), S0);
  t.equal(subject.next(c1, { tried: [E1, E2, E3] }), S1, 'when all were tried, they take turns');
});

t.test('B8 (kept): a record lives less than its timeout after the last use', async (t) => {
  const subject = new Subject({ affinity: { kind: 'clientIP', timeoutSeconds: 10 } });
  subject.set(S0, S1, S2);
  t.equal(subject.next(c1), S0);
  subject.clock.advance(9900);
  t.equal(subject.next(c1), S0, 'still sticky after 9.9 s');
  t.equal(subject.next(c2), S1);
  subject.clock.advance(9900);
  t.equal(subject.next(c1), S0, 'the use has pushed the end back');
  subject.clock.advance(100);
  t.equal(subject.next(c2), S2, 'over at 10.0 s: the next in turn');
});

t.test('B8 (kept): cleaning up removes only what has expired', async (t) => {
  const subject = new Subject({ affinity: { kind: 'clientIP', timeoutSeconds: 10 } });
  subject.set(S0, S1);
  subject.many([c1, c2]);
  subject.clock.advance(100);
  subject.next(c3);
  subject.clock.advance(9900);
  t.equal(subject.balancer.affinityClients, 3);
  subject.set(S0, S1);
  t.equal(subject.balancer.affinityClients, 1);
  t.equal(subject.next(c3), S0, 'the one of 9.9 s is still there');
});

t.test('B9 (different): a timeout that comes later counts at once', async (t) => {
  const subject = new Subject({ affinity: CLIENT_IP });
  subject.set(S0, S1);
  t.equal(subject.next(c1), S0);
  subject.clock.advance(60_000);
  subject.balancer.setAffinity({ kind: 'clientIP', timeoutSeconds: 10 });
  t.equal(subject.next(c1), S1, 'kube-proxy would continue with three hours');
  subject.balancer.setAffinity({ kind: 'clientIP', timeoutSeconds: 100 });
  subject.clock.advance(60_000);
  t.equal(subject.next(c1), S1, 'a longer one, too');
});

t.test('B10 (kept): endpoints that went and came again are new, and no one is bound', async (t) => {
  const subject = new Subject({ affinity: CLIENT_IP });
  subject.set(S0, S1);
  t.same(subject.many([c1, c2, c3]), [S0, S1, S0]);
  subject.set();
  subject.set(S0, S1);
  t.same(subject.many([c2, c1]), [S0, S1], 'round robin starts at the front');
});

t.test('B11 (kept): what may not be used is not picked', async (t) => {
  const subject = new Subject();
  subject.set(endpoint(S0, 'neither'), S1, endpoint(S2, 'neither'));
  t.same(subject.many(3), [S1, S1, S1]);
  subject.set(endpoint(S1, 'neither'));
  t.equal(subject.next(), 'none');
});

t.test(
  'switching affinity off forgets the clients (different: kube-proxy remembers them)',
  async (t) => {
    const subject = new Subject({ affinity: CLIENT_IP });
    subject.set(S0, S1);
    t.same(subject.many([c1, c1]), [S0, S0]);
    subject.balancer.setAffinity(NONE);
    t.same(subject.many([c1, c1]), [S1, S0]);
    subject.balancer.setAffinity(CLIENT_IP);
    t.same(subject.many([c1, c1]), [S1, S1]);
  },
);

t.test('the first order is shuffled, with the randomness given', async (t) => {
  const subject = new Subject({ random: rotated });
  subject.set(S0, S1, S2);
  t.same(subject.many(3), [S1, S2, S0]);
});
