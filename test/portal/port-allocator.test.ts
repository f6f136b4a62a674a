import t from 'tap';
import { formerKey, PortAllocator } from '../../src/portal/proxy-ports.ts';
import { seeded } from '../support/balancer.ts';

t.test('N3: a range of one port', async (t) => {
  const ports = new PortAllocator({ first: 4000, last: 4000 }, Math.random);
  t.equal(ports.allocate(), 4000);
  t.equal(ports.allocate(), undefined, 'at once (different: kube-proxy waits a second)');
  ports.release(4000);
  t.equal(ports.allocate(), 4000);
});

t.test('N3: every port of a range once, and in another order the next time', async (t) => {
  const ports = new PortAllocator({ first: 1, last: 100 }, seeded(1));
  const round = (): number[] => Array.from({ length: 100 }, () => ports.allocate() ?? -1);
  const first = round();
  t.same(
    [...first].sort((a, b) => a - b),
    Array.from({ length: 100 }, (_, index) => index + 1),
  );
  t.equal(ports.allocate(), undefined);
  for (const port of first) ports.release(port);
  const second = round();
  t.equal(new Set(second).size, 100);
  t.not(second.join(), first.join());
});

t.test(
  'N3 (different): without a range the kernel chooses, where kube-proxy panics on 0-0',
  async (t) => {
    const ports = new PortAllocator(undefined, Math.random);
    t.same([ports.allocate(), ports.allocate()], [0, 0]);
    ports.release(0);
  },
);

t.test('ports that were not handed out cannot be given back', async (t) => {
  const ports = new PortAllocator({ first: 10, last: 11 }, Math.random);
  ports.release(10);
  ports.release(99);
  const one = ports.allocate() ?? 0;
  ports.release(one);
  ports.release(one);
  t.same(new Set([ports.allocate(), ports.allocate()]), new Set([10, 11]));
  t.equal(ports.allocate(), undefined);
  t.match(ports.exhausted('demo/web:http'), {
    servicePort: 'demo/web:http',
    code: 'KPNG_PORT_RANGE_EXHAUSTED',
    message: /^demo\/web:http has no proxy port: all of 10-11 are taken/,
  });
});

t.test(
  'a listener gets the port that it had in a former process, and nobody else does',
  async (t) => {
    const [web, db, gone] = ['d/web:http', 'd/db', 'd/gone'].map((name) =>
      formerKey(name, '0.0.0.0', 'internal'),
    ) as [string, string, string];
    const former = new Map([
      [web, 12],
      [db, 99],
      [gone, 13],
    ]);
    const ports = new PortAllocator({ first: 10, last: 13 }, seeded(1), former);
    t.same(new Set([ports.allocate(), ports.allocate(db)]), new Set([10, 11]), 'one out of range');
    t.equal(ports.allocate(web), 12);
    t.equal(ports.allocate('d/new 0.0.0.0 internal'), 13, 'the last one is not kept for ever');
    t.equal(ports.allocate(gone), undefined);
    ports.release(12);
    t.equal(ports.allocate(web), 12, 'from among the free ones');
  },
);

t.test('a port that another program holds is the last to be handed out again', async (t) => {
  const ports = new PortAllocator({ first: 10, last: 12 }, seeded(1));
  const taken = ports.allocate() ?? 0;
  ports.reject(taken);
  t.ok(ports.hasOther);
  t.notOk([ports.allocate(), ports.allocate()].includes(taken));
  t.notOk(ports.hasOther);
  t.equal(ports.allocate(), taken);
  t.equal(ports.allocate(), undefined);
  ports.release(taken);
  t.equal(ports.allocate(), taken);
});

t.test('without a range the kernel chooses, whatever there was', async (t) => {
  const ports = new PortAllocator(
    undefined,
    Math.random,
    new Map([['d/web 0.0.0.0 internal', 12]]),
  );
  t.equal(ports.allocate('d/web 0.0.0.0 internal'), 0);
});
