import t from 'tap';
import { NonePortal } from '../../src/portal/address.ts';
import type { PortalPlan } from '../../src/portal/portal.ts';
import { PortAllocator } from '../../src/portal/proxy-ports.ts';
import { RedirectPlan } from '../../src/portal/redirect-plan.ts';
import { seeded } from '../support/balancer.ts';
import { listening, wants } from '../support/portals.ts';

t.test('N3: every port of a range once, and in another order the next time', async (t) => {
  t.equal(new PortAllocator(undefined, Math.random).allocate(), 0, 'any, without a range');
  const ports = new PortAllocator({ first: 1, last: 100 }, seeded(1));
  const round = (): number[] => Array.from({ length: 100 }, () => ports.allocate() ?? -1);
  const first = round();
  t.same(
    [...first].sort((a, b) => a - b),
    Array.from({ length: 100 }, (_, index) => index + 1),
  );
  t.equal(ports.allocate(), undefined, 'at once (different: kube-proxy waits a second)');
  for (const port of first) ports.release(port);
  const second = round();
  t.equal(new Set(second).size, 100);
  t.not(second.join(), first.join());
});

t.test('a listener gets the port that it had in a previous process', async (t) => {
  const former = new Map(Object.entries({ web: 12, db: 99, gone: 13 }));
  const ports = new PortAllocator({ first: 10, last: 13 }, seeded(1), former);
  t.same(new Set([ports.allocate(), ports.allocate('db')]), new Set([10, 11]), 'one out of range');
  t.equal(ports.allocate('web'), 12);
  t.equal(ports.allocate('new'), 13, 'the last one is not kept for ever');
  t.equal(ports.allocate('gone'), undefined);
  ports.release(12);
  t.equal(ports.allocate('web'), 12, 'from among the free ones');
});

t.test('when the range is exhausted the others wait, and the first by name is next', async (t) => {
  const allocator = new PortAllocator({ first: 36_000, last: 36_001 }, () => 0);
  const subject = new NonePortal(allocator, '127.0.0.1');
  const plan = subject.plan([wants('d/c'), wants('d/d'), wants('d/b'), wants('d/a')], []);
  t.same([...plan.keys()], ['d/a', 'd/b']);
  const code = 'KPNG_PORT_RANGE_EXHAUSTED';
  const message = /^d\/c has no proxy port: all of 36000-36001 are taken/;
  t.match(subject.problems(), [{ servicePort: 'd/c', code, message, count: 2 }]);
  const freed = subject.plan([], ['d/a']);
  t.same(listening(freed), {
    'd/c': [plan.get('d/a')?.map((x) => `${x.address}:${x.port} internal`)[0]],
  });
  t.same(
    subject.problems().map(({ servicePort }) => servicePort),
    ['d/d'],
  );
  subject.plan([], ['d/d']);
  t.same(subject.problems(), [], 'who does not want one any more does not wait');
  t.same(listening(subject.plan([wants('d/e')], ['d/b'])), {
    'd/e': [plan.get('d/b')?.map((x) => `${x.address}:${x.port} internal`)[0]],
  });
});

t.test('a port that another program holds is left to who gets no other', async (t) => {
  const allocator = new PortAllocator({ first: 36_000, last: 36_001 }, () => 0);
  const subject = new NonePortal(allocator, '127.0.0.1');
  const portsOf = (plan: PortalPlan) => [...plan.values()].flatMap((all) => all.map((x) => x.port));
  const [taken] = subject.plan([wants('d/a')], []).get('d/a') ?? [];
  t.ok(subject.portTaken('d/a', taken!));
  const [moved] = portsOf(subject.plan([], []));
  t.not(moved, taken!.port);
  t.same(portsOf(subject.plan([wants('d/b')], [])), [taken!.port]);
  t.notOk(subject.portTaken('d/b', taken!), 'it keeps it');
});

t.test('a shared socket takes no port of the range for each service', (t) => {
  const allocator = new PortAllocator({ first: 50_000, last: 50_000 }, Math.random);
  const plan = new RedirectPlan(allocator, { 4: '127.0.0.1' }, true);
  const set = [1, 2, 3].map((n) => wants(`d/s${n}`, `clusterIP 10.0.0.${n}:80`));
  t.equal(plan.plan(set, []).size, 3);
  t.same(plan.problems(), []);
  t.end();
});

t.test('the work for many UDP addresses of a service grows with their number', (t) => {
  const allocator = new PortAllocator(undefined, Math.random);
  const plan = new RedirectPlan(allocator, { 4: '127.0.0.1' }, true);
  const texts = Array.from(
    { length: 500 },
    (_, n) => `externalIP 10.0.${n >> 8}.${n & 255}:53/UDP`,
  );
  const listeners = plan.plan([wants('d/dns', ...texts)], []).get('d/dns') ?? [];
  t.equal(listeners.length, 500);
  let reads = 0;
  for (const each of listeners) {
    const { address } = each;
    Object.defineProperty(each, 'address', { get: () => ((reads += 1), address) });
  }
  const bound = listeners.map((each) => ({ listen: each, boundPort: 53 }));
  plan.settle(new Map([['d/dns', bound]]));
  t.match(plan.redirectsOf('d/dns').at(-1), { proxyPort: 53 });
  t.equal(plan.proxyPortsOf('d/dns').length, 500);
  plan.plan([wants('d/dns', ...texts.slice(1))], []);
  t.ok(reads < 20 * 500, `${reads} reads of 500 addresses`);
  t.end();
});
