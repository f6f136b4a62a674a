import t from 'tap';
import { DEFAULT_ROUTE, policyRoute } from '../../../src/portal/nftables/policy-route.ts';
import { exits, FakeExec } from '../../support/fake-exec.ts';

const ROUTE = { type: 'local', dst: 'default', dev: 'lo', protocol: '78', scope: 'host' };

/** A host with these routing rules, and these routes in our table; other commands of `ip -batch -` are in `written`. */
function host(rules: readonly object[], routes: readonly object[] = [ROUTE]) {
  const ip = new FakeExec(({ args }) => {
    const isListing = args.includes('-j');
    return { stdout: isListing ? `${JSON.stringify(rules)}\n${JSON.stringify(routes)}\n` : '' };
  });
  const written = () =>
    ip.commands.flatMap(({ args, stdin = '' }) => (args.includes('-j') ? [] : stdin)).join('');
  return { route: policyRoute(ip.exec, DEFAULT_ROUTE), written };
}

const OURS = {
  priority: 40,
  src: 'all',
  fwmark: '0x40',
  fwmask: '0x40',
  table: '10040',
  protocol: '78',
};

t.test('only what is missing is written, and a rule for the mark of before goes', async (t) => {
  const ours = 'fwmark 0x40/0x40 lookup 10040 priority 40 protocol 78';
  const add = `rule add ${ours}\n`;
  const removal = `rule delete ${ours.replaceAll('0x40', '0x80')}\n`;
  for (const [rules, difference, lines] of [
    [[OURS], undefined, ''],
    [[], `no rule ${ours} in IPv4`, add],
    [[{ ...OURS, fwmark: '0x80', fwmask: '0x80' }], `no rule ${ours} in IPv4`, add + removal],
  ] as const) {
    const { route, written } = host(rules);
    t.equal(await route.difference([4]), difference);
    const found = await route.ensure([4]);
    t.equal(written(), lines.replace(removal, ''), 'while rules still set the mark of before');
    await route.removeOthers(found);
    t.equal(written(), lines);
  }
});

t.test('a table without routes, which to some versions of ip does not exist', async (t) => {
  const stderr = 'Error: ipv4: FIB table does not exist.\nDump terminated\nCommand failed -:2\n';
  const ip = new FakeExec(({ args }) =>
    args.includes('-j') ? { ...exits(stderr), stdout: `${JSON.stringify([OURS])}\n` } : {},
  );
  t.match(await policyRoute(ip.exec, DEFAULT_ROUTE).difference([4]), /^no route local default/);
});

t.test('a mark or table that another program uses is a conflict', async (t) => {
  const rule = { priority: 32_764, fwmark: '0xca6c', table: '51820' };
  const gateway = { dst: 'default', gateway: '192.0.2.1', dev: 'eth0' };
  for (const [rules, routes, message] of [
    [[rule], [ROUTE], /rule 32764 .*0xca6c\/0xffffffff/],
    [[{ ...rule, fwmark: '0x40', fwmask: '0xff' }], [ROUTE], /0x40\/0xff/],
    [[], [gateway], /table 10040/],
  ] as const) {
    const { route, written } = host(rules, routes);
    await t.rejects(route.ensure([4]), { code: 'KPNG_PORTAL_CONFLICT', message });
    t.equal(written(), '');
  }
});

t.test('a rule that may route marked packets first is found', async (t) => {
  const local = { priority: 0, src: 'all', table: 'local' };
  const later = { priority: 41, src: 'all', iif: 'eth0', table: '77' };
  const otherMark = { priority: 9, src: 'all', fwmark: '0x200', fwmask: '0xf00', table: '2004' };
  await host([local, otherMark, OURS, later]).route.ensure([4], true);
  for (const priority of [10, 40]) {
    const refused = host([local, { ...later, priority }]).route.ensure([4], true);
    const message = new RegExp(`routing rule ${priority} `);
    await t.rejects(refused, { code: 'KPNG_PORTAL_CONFLICT', message });
  }
});
