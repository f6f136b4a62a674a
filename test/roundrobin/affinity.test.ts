import t from 'tap';
import type { EndpointSpec } from '../../src/proxysocket/spec.ts';
import { AffinityBudget, AffinityTable } from '../../src/roundrobin/affinity.ts';
import { Member } from '../../src/roundrobin/endpoint.ts';
import { CLIENT_IP, endpoint, NONE, Subject } from '../support/balancer.ts';

const here = new Member('10.0.0.1:80', endpoint('10.0.0.1:80'));

function table(maxClients: number, timeoutMs = 1000) {
  const evicted: string[] = [];
  const budget = new AffinityBudget({ maxClients: 1000 });
  const limit = { maxClients, onEvict: (client: string) => evicted.push(client) };
  const made = new AffinityTable(limit, timeoutMs, budget);
  return { table: made, evicted };
}

t.test('the least recently seen client is evicted when there are too many', async (t) => {
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
  clients.use('e', 6);
  clients.bind('f', here, 7);
  clients.bind('g', here, 8);
  t.same(evicted, ['c', 'a', 'd', 'b'], 'use counts wherever the client was in the order');
});

t.test('all tables together evict the least recently seen client', async (t) => {
  const evicted: number[] = [];
  const budget = new AffinityBudget({ maxClients: 4, onEvict: () => evicted.push(budget.size) });
  const made = () => new AffinityTable({ maxClients: 3 }, 1000, budget);
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

t.test('stale records are dropped when they are used, and two with each new client', async (t) => {
  const { table: clients } = table(10);
  const target = new Member('10.0.0.2:80', endpoint('10.0.0.2:80'));
  for (const client of ['a', 'b', 'c', 'd']) clients.bind(client, target, 0);
  target.gone = true;
  t.equal(clients.use('a', 1), undefined);
  t.equal(clients.size, 3);
  clients.bind('e', here, 1);
  t.equal(clients.size, 2);
});

t.test('without affinity a balancer keeps no client in the shared budget', async (t) => {
  const affinityBudget = new AffinityBudget({ maxClients: 2 });
  const subject = new Subject({ affinity: CLIENT_IP, affinityBudget }).with('10.0.0.1:80');
  subject.many('123');
  t.equal(affinityBudget.size, 2);
  subject.balancer.setAffinity(NONE);
  t.equal(affinityBudget.size, 0);
});

t.test('only new endpoints are examined, however many stay', async (t) => {
  const { balancer } = new Subject();
  const asked: string[] = [];
  const admits = ({ address }: EndpointSpec): boolean => {
    asked.push(address);
    return address !== '10.0.0.2';
  };
  const texts = (list: readonly { text: string }[]) => list.map(({ text }) => text).sort();
  const specs = [1, 2, 3, 4].map((which) => endpoint(`10.0.0.${which}:80`));
  balancer.update(specs.slice(0, 3), admits);
  t.strictSame(asked.splice(0), ['10.0.0.1', '10.0.0.2', '10.0.0.3']);
  t.strictSame(texts(balancer.endpoints()), ['10.0.0.1:80', '10.0.0.3:80']);
  const gone = balancer.update([...specs.slice(3), ...specs.slice(0, 2)], admits);
  t.strictSame(texts(gone), ['10.0.0.3:80']);
  t.strictSame(asked, ['10.0.0.4', '10.0.0.2'], 'what was refused is asked about again');
});

t.test('a list of the objects before the last change is looked at again', async (t) => {
  const { balancer } = new Subject();
  const specs = [1, 2, 3].map((which) => endpoint(`10.0.0.${which}:80`));
  balancer.update(specs);
  balancer.patch({ removed: specs.slice(1, 2), set: [] });
  balancer.update(specs);
  t.equal(balancer.size, 3);
});
