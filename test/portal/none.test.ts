import t from 'tap';
import { NonePortal } from '../../src/portal/none.ts';
import { PortAllocator } from '../../src/portal/proxy-ports.ts';
import type { PortRange } from '../../src/util/port-range.ts';
import { listening, wants } from '../support/portals.ts';

function none(range?: PortRange, bindAddress?: string): NonePortal {
  const allocator = new PortAllocator(range, () => 0);
  return new NonePortal({ allocator, ...(bindAddress === undefined ? {} : { bindAddress }) });
}

t.test('every service port has one proxy port, whatever its portals', async (t) => {
  const subject = none();
  const plan = subject.plan(
    [
      wants('d/web', 'clusterIP 10.0.0.1:80', 'nodePort 30080'),
      wants('d/dns', 'clusterIP 10.0.0.2:53/UDP'),
    ],
    [],
  );
  t.same(listening(plan), { 'd/dns': ['127.0.0.1:0 internal'], 'd/web': ['127.0.0.1:0 internal'] });
  t.same(plan.problems, []);
  await subject.commit(new Map());
  await subject.close();
});

t.test('the proxy port stays when the portals change', async (t) => {
  const subject = none({ first: 36000, last: 36010 }, '192.0.2.7');
  const plan = subject.plan([wants('d/web', 'clusterIP 10.0.0.1:80')], []);
  t.match(listening(plan)['d/web']?.[0], /^192\.0\.2\.7:360\d\d internal$/);
  t.same(listening(subject.plan([wants('d/web', 'clusterIP 10.0.0.9:80')], [])), {});
});

t.test('when the range is used up the rest waits, and the first by name is next', async (t) => {
  const subject = none({ first: 36000, last: 36001 });
  const plan = subject.plan([wants('d/c'), wants('d/d'), wants('d/b'), wants('d/a')], []);
  t.same([...plan.listen.keys()], ['d/a', 'd/b']);
  const code = 'KPNG_PORT_RANGE_EXHAUSTED';
  const message = /^d\/c has no proxy port: all of 36000-36001 are taken/;
  t.match(plan.problems, [{ servicePort: 'd/c', code, message, count: 2 }]);
  const freed = subject.plan([], ['d/a']);
  t.same(listening(freed), {
    'd/c': [plan.listen.get('d/a')?.map((x) => `${x.address}:${x.port} internal`)[0]],
  });
  t.same(
    freed.problems.map(({ servicePort }) => servicePort),
    ['d/d'],
  );
  t.same(subject.plan([], ['d/d']).problems, [], 'who does not want one any more does not wait');
  t.same(listening(subject.plan([wants('d/e')], ['d/b'])), {
    'd/e': [plan.listen.get('d/b')?.map((x) => `${x.address}:${x.port} internal`)[0]],
  });
});
