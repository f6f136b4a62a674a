import t from 'tap';
import { DEFAULT_ROUTE, PolicyRoute } from '../../../src/portal/nftables/policy-route.ts';
import { FakeExec } from '../../support/fake-exec.ts';

/** A host with these routing rules, and these routes in our table; what was written to `ip -batch -` is in `written`. */
function host(rules: readonly object[], routes = 'local default dev lo proto 78 scope host\n') {
  const ip = new FakeExec(({ args }) => {
    if (args.includes('rule')) return { stdout: JSON.stringify(rules) };
    return args.includes('route') ? { stdout: routes } : {};
  });
  const written = () => ip.commands.flatMap(({ stdin }) => stdin ?? []).join('');
  return { route: new PolicyRoute(ip.exec, DEFAULT_ROUTE), written };
}

const OURS = {
  priority: 40,
  src: 'all',
  fwmark: '0x40',
  fwmask: '0x40',
  table: '10040',
  protocol: '78',
};

t.test('nothing is written where rule and route are there', async (t) => {
  const { route, written } = host([OURS]);
  t.equal(await route.ensure([4]), false);
  t.equal(written(), '');
  t.equal(await route.difference([4]), undefined);
});

t.test('a rule for the mark of before is replaced', async (t) => {
  const { route, written } = host([{ ...OURS, fwmark: '0x80', fwmask: '0x80' }]);
  t.match(await route.difference([4]), /^no rule fwmark 64\/64/);
  t.equal(await route.ensure([4]), true);
  t.equal(
    written(),
    'rule add fwmark 64/64 lookup 10040 priority 40 protocol 78\n' +
      'rule delete fwmark 0x80/0x80 lookup 10040 priority 40 protocol 78\n',
  );
});

t.test('a mark that another program routes is a conflict', async (t) => {
  for (const theirs of [{ fwmark: '0xca6c' }, { fwmark: '0x40', fwmask: '0xff' }]) {
    const { route, written } = host([{ priority: 32_764, ...theirs, table: '51820' }]);
    await t.rejects(route.ensure([4]), { code: 'KPNG_PORTAL_CONFLICT' }, theirs.fwmark);
    t.equal(written(), '');
  }
});

t.test('a rule that may route marked packets first is found', async (t) => {
  const local = { priority: 0, src: 'all', table: 'local' };
  const later = { priority: 41, src: 'all', iif: 'eth0', table: '77' };
  const otherMark = { priority: 9, src: 'all', fwmark: '0x200', fwmask: '0xf00', table: '2004' };
  await host([local, otherMark, OURS, later]).route.refuseEarlierRules([4]);
  for (const priority of [10, 40]) {
    const { route } = host([local, { ...later, priority }]);
    const code = 'KPNG_PORTAL_CONFLICT';
    await t.rejects(route.refuseEarlierRules([4]), {
      code,
      message: new RegExp(`routing rule ${priority} `),
    });
  }
});

t.test('a table that another program uses is a conflict', async (t) => {
  const { route, written } = host([], 'default via 192.0.2.1 dev eth0 proto static\n');
  await t.rejects(route.ensure([4]), { code: 'KPNG_PORTAL_CONFLICT', message: /table 10040/ });
  t.equal(written(), '');
});
