/** B1 to B11 are the vectors of kube-proxy's userspace mode: each kept, or different on purpose. */
import t from 'tap';
import { endpoint, NONE, sticky, Subject } from '../support/balancer.ts';
import { AffinityBudget, AffinityTable } from '../../src/roundrobin/affinity.ts';
import { Member } from '../../src/roundrobin/endpoint.ts';

const [A, B, C] = ['10.0.0.1:80', '10.0.0.2:80', '10.0.0.3:80'] as const;
const [N0, N1] = ['10.0.1.1:80', '10.0.1.2:80'] as const;
const A6 = '[fd00::1]:80';

t.test('B1 (kept): without endpoints nothing is remembered about a client', async (t) => {
  const subject = sticky();
  t.equal(subject.next('1'), 'none');
  t.equal(subject.clients, 0);
});

t.test('B3 (kept): another order changes nothing, another set starts again', async (t) => {
  const subject = new Subject().with(A, B, C);
  t.equal(subject.next(), A);
  t.same(subject.set(C, A, B), []);
  t.same(subject.many(3), [B, C, A]);
  t.same(subject.set(N0, N1).sort(), [A, B, C]);
  t.same(subject.many(4), [N0, N1, N0, N1]);
});

t.test('B3 (different): a change in part does not shuffle everything again', async (t) => {
  const subject = new Subject().with(A, B, C);
  t.equal(subject.next(), A);
  subject.set(N0, A, B, C);
  t.same(subject.many(5), [B, C, A, N0, B], 'the turn continues, the new one comes last');
  subject.set(N0, A, B);
  t.same(subject.many(4), [A, N0, B, A], 'the turn of one that is gone passes to the next');
});

t.test('B5 (kept): clients stick, also when affinity comes after the endpoints', async (t) => {
  const subject = new Subject().with(A, B);
  subject.balancer.setAffinity({ kind: 'clientIP', timeoutSeconds: 10_800 });
  t.same(subject.many('123123'), [A, B, A, A, B, A], 'the third one shares');
  subject.balancer.setAffinity(NONE);
  t.same(subject.many('11'), [B, A], 'without affinity they are forgotten');
  subject.balancer.setAffinity({ kind: 'clientIP', timeoutSeconds: 10_800 });
  t.same(subject.many('11'), [B, B], 'different: kube-proxy remembers them');
});

t.test('B6 (different): a client that loses its endpoint gets the next in turn', async (t) => {
  const subject = sticky(A, B, C);
  t.same(subject.many('11223'), [A, A, B, B, C]);
  t.same(subject.set(A, B), [C]);
  t.same(subject.many('3123'), [A, A, B, A], 'the two others keep theirs');
  subject.set(A, B, N0);
  t.same(subject.many('123'), [A, B, A], 'a new endpoint is for new clients only');
  t.same(subject.many('456456'), [B, A, N0, B, A, N0], 'who come to it in its turn');
});

t.test('B7 (different): a retry never goes back to what was tried in vain', async (t) => {
  const subject = sticky(A, B, C);
  t.same(subject.many('123'), [A, B, C]);
  const [a, b, c] = [subject.member(A), subject.member(B), subject.member(C)];
  t.equal(subject.next('1', { tried: [a] }), B, 'kube-proxy would try the first one again');
  t.equal(subject.next('1', { tried: [a, b] }), C);
  t.equal(subject.next('2'), B, 'the others keep theirs');
  t.equal(subject.next('1'), C, 'and the client stays with the last one it was sent to');
  t.equal(subject.next('1', { tried: [c] }), A);
  t.equal(subject.next('1', { tried: [a, b, c] }), B, 'when all were tried, they take turns');
});

t.test('B8 (kept): a record lives less than its timeout after the last use', async (t) => {
  const subject = sticky(A, B, C);
  subject.balancer.setAffinity({ kind: 'clientIP', timeoutSeconds: 10 });
  t.equal(subject.next('1'), A);
  subject.clock.advance(9900);
  t.same(subject.many('12'), [A, B], 'still sticky after 9.9 s');
  subject.clock.advance(9900);
  t.equal(subject.next('1'), A, 'the use has pushed the end back');
  subject.clock.advance(100);
  t.equal(subject.clients, 2);
  subject.set(A, B, C);
  t.equal(subject.clients, 1, 'a change removes what has expired');
  t.equal(subject.next('2'), C, 'over at 10.0 s: the next in turn');
  subject.set(B, C);
  t.equal(subject.clients, 1, 'and what had an endpoint that is gone');
});

t.test('B9 (different): a timeout that comes later counts at once', async (t) => {
  const subject = sticky(A, B);
  t.equal(subject.next('1'), A);
  subject.clock.advance(60_000);
  subject.balancer.setAffinity({ kind: 'clientIP', timeoutSeconds: 10 });
  t.equal(subject.next('1'), B, 'kube-proxy would continue with three hours');
  subject.balancer.setAffinity({ kind: 'clientIP', timeoutSeconds: 100 });
  subject.clock.advance(60_000);
  t.equal(subject.next('1'), B, 'a longer one, too');
});

t.test('an endpoint that is drained is present; one that went and came is new', async (t) => {
  const subject = sticky(A, B);
  const drained = subject.pick('1');
  t.equal(drained?.text, A);
  t.same(subject.set(endpoint(A, 'neither'), B), [], 'nothing is gone');
  t.equal(subject.balancer.size, 2);
  t.equal(subject.next('1'), B, 'the client that was bound to it moves on');
  subject.set(A, B);
  t.equal(subject.member(A), drained, 'the same object stands for it when it is back');
  t.equal(subject.next('1'), B, 'and the client stays where it is');
  subject.set();
  subject.set(A, B);
  t.not(subject.member(A), drained);
  t.same(subject.many('21'), [A, B], 'B10 (kept): no client is bound to it');
});

t.test('endpoints of another family serve in the same turn, where there is no other', async (t) => {
  const subject = new Subject().with(A, B);
  t.same([subject.for('internal', 4), subject.for('internal', 6)], [A, B]);
  subject.set(endpoint('fd00::1:80', 'external'), A);
  t.equal(subject.for('internal', 6), A, 'none of its family for this traffic');
  t.equal(subject.for('external', 6), A6);
});

t.test('an endpoint that failed is skipped, longer each time, until it connects', async (t) => {
  const subject = new Subject().with(A, B);
  const skippedFor = (): number => {
    // Failures of attempts made before do not make it longer.
    subject.fail(A, A, A);
    let ms = 0;
    while (subject.many(2).every((text) => text === B)) {
      ms += 500;
      subject.clock.advance(500);
      if (ms > 60_000) throw new Error('it never comes back');
    }
    return ms;
  };
  t.same([1, 2, 3, 4, 5, 6, 7].map(skippedFor), [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
  subject.balancer.connected(subject.member(A));
  t.equal(skippedFor(), 1000, 'starts again at the shortest time');
  const gone = subject.member(A);
  t.equal(subject.balancer.failing, 1);
  subject.set(B);
  subject.balancer.connectFailed(gone, 'refused');
  t.equal(subject.balancer.failing, 0, 'one that is gone does not count');
});

t.test('when all that may serve are skipped they are used all the same, in turn', async (t) => {
  const subject = new Subject().with(A, B);
  subject.fail(B, A);
  t.same(subject.many(4), [B, A, B, A]);
  const other = new Subject().with(endpoint(A, 'external'), B, endpoint('fd00::1:80'));
  other.fail(B);
  t.equal(other.for('external'), A);
  t.equal(other.for('internal'), B, 'the only one for internal traffic');
  t.equal(other.for('internal', 6), A6);
});

t.test('a client whose endpoint fails for others moves to another and stays there', async (t) => {
  const subject = sticky(A, B);
  t.same(subject.many('12'), [A, B]);
  subject.fail(A);
  t.same(subject.many('12'), [B, B]);
  subject.clock.advance(60_000);
  t.same(subject.many('12'), [B, B], 'no way back when the endpoint is well again');
  subject.fail(B, A);
  t.equal(subject.next('1'), B, 'with every endpoint skipped the client keeps its own');
});

t.test('a client keeps the endpoint that it had in another process, while it may', async (t) => {
  const subject = new Subject().with(A, B, C);
  t.same([subject.next('1', { previous: C }), subject.next()], [C, A], 'no one loses a turn');
  t.equal(subject.next('1', { previous: '10.0.0.9:80' }), B, 'it is gone');
  subject.set(A, B, endpoint(C, 'external'));
  t.equal(subject.next('1', { previous: C }), A, 'it does not serve such traffic any more');
  subject.set(A, B, C);
  subject.fail(C);
  t.not(subject.next('1', { previous: C }), C, 'it refuses');

  const bound = sticky(A, B, C);
  t.equal(bound.next('1', { previous: C }), C);
  t.equal(bound.next('1'), C, 'with session affinity the client is bound to it');
  t.equal(bound.next('1', { previous: B }), C, 'what it is bound to counts for more');
});

const here = new Member('10.0.0.1:80', endpoint('10.0.0.1:80'));

function table(maxClients: number, budget = new AffinityBudget({ maxClients: 1000 })) {
  return Object.assign(new AffinityTable({ maxClients }, budget), { timeoutMs: 1000 });
}

t.test('the least recently used client is forgotten when there are too many', async (t) => {
  // Small letters are bound, capital ones are used.
  for (const [steps, left] of [
    ['abcAbd', 'abd'],
    ['abcAbde', 'bde'],
    ['abcAbdeBEfg', 'efg'],
  ] as const) {
    const clients = table(3);
    for (const [now, step] of Array.from(steps).entries()) {
      const client = step.toLowerCase();
      if (step === client) clients.bind(client, here, now);
      else clients.use(client, now);
    }
    const found = Array.from('abcdefg').filter((client) => clients.use(client, 20) === here);
    t.equal(found.join(''), left, steps);
  }
});

t.test('all tables together forget the least recently used client', async (t) => {
  let evicted = 0;
  const signal = { refused: () => (evicted += 1), freed: () => undefined };
  const budget = new AffinityBudget({ maxClients: 4, signal });
  const [web, api] = [table(3, budget), table(3, budget)];
  web.bind('a', here, 0);
  api.bind('a', here, 1);
  web.bind('b', here, 2);
  api.bind('b', here, 3);
  web.use('a', 4);
  web.bind('c', here, 5);
  t.equal(api.use('a', 6), undefined, 'it was seen longest ago');
  t.equal(api.use('b', 6), here);
  t.equal(web.size, 3);
  web.bind('d', here, 7);
  t.equal(evicted, 1, 'the limit of the table makes room, too');
  web.clear();
  t.equal(budget.size, 1);
  for (const client of ['e', 'f', 'g', 'h']) web.bind(client, here, 8);
  t.equal(budget.size, 4);
  t.equal(api.size, 1);
});

t.test('stale records are dropped when they are used, and two with each new client', async (t) => {
  const clients = table(10);
  const target = new Member('10.0.0.2:80', endpoint('10.0.0.2:80'));
  for (const client of ['a', 'b', 'c', 'd']) clients.bind(client, target, 0);
  target.gone = true;
  t.equal(clients.use('a', 1), undefined);
  t.equal(clients.size, 3);
  clients.bind('e', here, 1);
  t.equal(clients.size, 2);
});
