import t from 'tap';
import { AffinityBudget } from '../../src/roundrobin/affinity-budget.ts';
import { AffinityTable } from '../../src/roundrobin/affinity.ts';
import { CLIENT_IP, Subject } from '../support/balancer.ts';

const here = { gone: false };

function table(maxClients: number, timeoutMs = 1000) {
  const evicted: string[] = [];
  const made = new AffinityTable<{ gone: boolean }>({
    maxClients,
    timeoutMs,
    onEvict: (client) => evicted.push(client),
  });
  return { table: made, evicted };
}

t.test('the client that was seen longest ago goes when there are too many', async (t) => {
  const { table: clients, evicted } = table(3);
  for (const client of ['a', 'b', 'c']) clients.bind(client, here, 0);
  clients.use('a', 1);
  clients.bind('b', here, 2);
  clients.bind('d', here, 3);
  t.same(evicted, ['c']);
  clients.bind('e', here, 4);
  t.same(evicted, ['c', 'a']);
  t.equal(clients.size, 3);
  t.equal(clients.use('b', 5), here);
});

t.test('expired clients make room without counting as evicted', async (t) => {
  const { table: clients, evicted } = table(3, 10);
  for (const client of ['a', 'b', 'c']) clients.bind(client, here, 0);
  clients.bind('d', here, 10);
  t.same(evicted, []);
  t.equal(clients.size, 2, 'two old ones go for one new one');
});

t.test('a target that is gone is never returned, and its records are dropped', async (t) => {
  const { table: clients } = table(10);
  const target = { gone: false };
  clients.bind('a', target, 0);
  clients.bind('b', target, 0);
  target.gone = true;
  t.equal(clients.use('a', 1), undefined);
  t.equal(clients.size, 1);
  clients.clearStale(1);
  t.equal(clients.size, 0);
});

t.test('all tables together forget the client that was seen longest ago', async (t) => {
  const evicted: number[] = [];
  const budget = new AffinityBudget({ maxClients: 4, onEvict: () => evicted.push(budget.size) });
  const made = () => new AffinityTable({ maxClients: 3, timeoutMs: 1000, budget });
  const [web, api] = [made(), made()];
  web.bind('a', here, 0);
  api.bind('a', here, 1);
  web.bind('b', here, 2);
  api.bind('b', here, 3);
  web.use('a', 4);
  web.bind('c', here, 5);
  t.equal(api.use('a', 6), undefined, 'it was seen longest ago');
  t.equal(api.use('b', 6), here);
  t.equal(web.size, 3);
  t.same(evicted, [4]);
  web.bind('d', here, 7);
  t.same(evicted, [4], 'the limit of the table makes room, too');
  web.clear();
  t.equal(budget.size, 1);
  for (const client of ['e', 'f', 'g', 'h']) web.bind(client, here, 8);
  t.equal(budget.size, 4);
  t.equal(api.size, 1);
});

t.test('balancers that are gone keep nobody in the common memory', async (t) => {
  const affinityBudget = new AffinityBudget({ maxClients: 10 });
  const subject = new Subject({ affinity: CLIENT_IP, affinityBudget });
  subject.set('10.0.0.1:80');
  for (let client = 0; client < 50; client += 1) subject.next(`client-${client}`);
  t.equal(affinityBudget.size, 10);
  t.equal(subject.balancer.affinityClients, 10);
  subject.balancer.setAffinity({ kind: 'none' });
  t.equal(affinityBudget.size, 0);
});

t.test('a table of one client works', async (t) => {
  const { table: clients, evicted } = table(1);
  clients.bind('a', here, 0);
  clients.bind('b', here, 0);
  t.equal(clients.use('a', 0), undefined);
  t.equal(clients.use('b', 0), here);
  t.same(evicted, ['a']);
});

t.test(
  'a balancer under a flood of clients stays within its bound and tells who was forgotten',
  async (t) => {
    const subject = new Subject({ affinity: CLIENT_IP, maxAffinityClients: 50 });
    subject.set('10.0.0.1:80', '10.0.0.2:80');
    for (let client = 0; client < 1000; client += 1) {
      subject.next(`client-${client}`);
      if (subject.balancer.affinityClients > 50) t.fail('too many clients are remembered');
    }
    t.equal(subject.evicted.length, 950);
    t.equal(subject.evicted[0], 'client-0');
  },
);
