import * as fc from 'fast-check';
import t from 'tap';
import type { EndpointSpec } from '../../src/proxysocket/spec.ts';
import { AffinityBudget, AffinityTable } from '../../src/roundrobin/affinity.ts';
import { CLIENT_IP, endpoint, seeded, Subject } from '../support/balancer.ts';
import { holds } from '../support/property.ts';

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

t.test('a removed target is never returned, and its records are dropped', async (t) => {
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

t.test('all tables together evict the least recently seen client', async (t) => {
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

t.test('removed balancers keep no client in the shared budget', async (t) => {
  const affinityBudget = new AffinityBudget({ maxClients: 10 });
  const subject = new Subject({ affinity: CLIENT_IP, affinityBudget });
  subject.set('10.0.0.1:80');
  for (let client = 0; client < 50; client += 1) subject.next(`client-${client}`);
  t.equal(affinityBudget.size, 10);
  t.equal(subject.balancer.affinityClients, 10);
  subject.balancer.setAffinity({ kind: 'none' });
  t.equal(affinityBudget.size, 0);
});

t.test(
  'a balancer under a flood of clients stays within its bound and reports who was forgotten',
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

const spec: fc.Arbitrary<EndpointSpec> = fc
  .tuple(fc.nat(9), fc.constantFrom('both', 'internal', 'external', 'neither'))
  .map(([which, allowed]) => endpoint(`10.0.0.${which}:80`, allowed as 'both'));

/** Lists that have objects of the previous lists in them, in the same order or another. */
const lists = fc
  .tuple(fc.array(spec, { minLength: 1, maxLength: 12 }), fc.array(fc.array(fc.nat(11))))
  .map(([pool, picks]) =>
    picks.map((indexes) => indexes.map((index) => pool[index % pool.length] as EndpointSpec)),
  );

function seen(subject: Subject, list: readonly EndpointSpec[]): unknown {
  const gone = subject.set(...list).sort();
  const turns = (traffic: 'internal' | 'external') => list.map(() => subject.for(traffic));
  const all = subject.balancer.endpoints().map(({ text }) => text);
  return [gone, all, turns('internal'), turns('external')];
}

t.test(
  'an update means the same whether its objects are those of the last one or equal ones',
  async (t) => {
    holds(
      t,
      fc.property(lists, fc.nat(), (steps, seed) => {
        const same = new Subject({ random: seeded(seed) });
        const equal = new Subject({ random: seeded(seed) });
        return steps.every((list) => {
          const copies = list.map((each) => ({ ...each }));
          return JSON.stringify(seen(same, list)) === JSON.stringify(seen(equal, copies));
        });
      }),
    );
  },
);

t.test(
  'what all listings of an endpoint allow is allowed, and no more than the last ones do',
  async (t) => {
    const subject = new Subject();
    const inside = endpoint('10.0.0.1:80', 'internal');
    const outside = endpoint('10.0.0.1:80', 'external');
    const allowed = () => [subject.for('internal'), subject.for('external')];
    subject.set(inside, outside);
    t.strictSame(allowed(), ['10.0.0.1:80', '10.0.0.1:80']);
    t.equal(subject.balancer.size, 1);
    subject.set(inside);
    t.strictSame(allowed(), ['10.0.0.1:80', 'none']);
    subject.set(outside, inside);
    t.strictSame(allowed(), ['10.0.0.1:80', '10.0.0.1:80']);
    subject.set(outside, outside);
    t.strictSame(allowed(), ['none', '10.0.0.1:80']);
  },
);

t.test('only new endpoints are examined, however many stay', async (t) => {
  const { balancer } = new Subject();
  const asked: string[] = [];
  const admits = ({ address }: EndpointSpec): boolean => {
    asked.push(address);
    return address !== '10.0.0.2';
  };
  const [one, two, three, four] = [1, 2, 3, 4].map((which) => endpoint(`10.0.0.${which}:80`));
  if (!one || !two || !three || !four) throw new Error('four were made');
  balancer.update([one, two, three], admits);
  t.strictSame(asked.splice(0), ['10.0.0.1', '10.0.0.2', '10.0.0.3']);
  t.strictSame(
    balancer
      .endpoints()
      .map(({ text }) => text)
      .sort(),
    ['10.0.0.1:80', '10.0.0.3:80'],
  );
  const gone = balancer.update([four, one, two], admits);
  t.strictSame(
    gone.map(({ text }) => text),
    ['10.0.0.3:80'],
  );
  t.strictSame(asked, ['10.0.0.4', '10.0.0.2'], 'what was refused is asked about again');
});
