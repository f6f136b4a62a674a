import t from 'tap';
import { exits } from '../../support/fake-exec.ts';
import { KeeperRig } from '../../support/keeper-rig.ts';

/** `10.1.x.y`, all different. */
const many = (count: number): string[] =>
  Array.from({ length: count }, (_, n) => `10.1.${n >> 8}.${n & 255}`);

const DENIED = exits('RTNETLINK answers: Operation not permitted\nCommand failed -:1\n');

t.test('an address stays while any service port needs it', async (t) => {
  const rig = new KeeperRig(t);
  await rig.sync({ 'd/a:web': ['10.0.0.1', 'fd00::1'], 'd/a:dns': ['10.0.0.1', 'fd00::1'] });
  t.same(rig.ip.addresses('kpng0'), ['10.0.0.1/32', 'fd00::1/128']);
  await rig.sync({ 'd/a:web': [] });
  t.same(rig.ip.addresses('kpng0'), ['10.0.0.1/32', 'fd00::1/128'], 'the other port is there');
  await rig.sync({ 'd/a:dns': ['10.0.0.1'] });
  t.same(rig.ip.addresses('kpng0'), ['10.0.0.1/32']);
  await rig.sync({ 'd/a:dns': [] });
  t.same(rig.ip.addresses('kpng0'), []);
  t.same(rig.news(), ['start +2 -0', 'change +0 -1', 'change +0 -1']);
});

t.test('a sync costs what it changes: one run, and no listing', async (t) => {
  const rig = new KeeperRig(t);
  await rig.sync(Object.fromEntries(many(500).map((each) => [`d/s ${each}`, [each]])));
  const before = rig.ip.commands.length;
  await rig.sync({ 'd/new': ['10.9.0.1'] });
  t.same(rig.ip.batches.at(-1), ['address add 10.9.0.1/32 dev kpng0 scope host metric 27504']);
  t.equal(rig.ip.commands.length, before + 1);
  await rig.sync({ 'd/new': ['10.9.0.1'] });
  t.equal(rig.ip.commands.length, before + 1, 'no change, no program');
  await rig.sync({ 'd/other': ['10.9.0.1'], 'd/new': [] });
  t.equal(rig.ip.commands.length, before + 1, 'an address that moves to another service stays');
});

t.test('a restart takes over what the previous process has left', async (t) => {
  const first = new KeeperRig(t);
  await first.sync({ 'd/a': ['10.0.0.1'], 'd/b': ['10.0.0.2'] });
  first.ip.link('kpng0').addresses.push({ address: '10.0.0.7', prefix: 32 });
  const second = new KeeperRig(t, { ip: first.ip });
  second.keeper.want('d/a', ['10.0.0.1']);
  second.keeper.want('d/c', ['10.0.0.3', '10.0.0.7']);
  await second.keeper.prepare();
  t.same(
    first.ip.addresses('kpng0'),
    ['10.0.0.1/32', '10.0.0.2/32', '10.0.0.3/32', '10.0.0.7/32'],
    'nothing goes before the new state is in place',
  );
  await second.keeper.commit();
  t.same(first.ip.addresses('kpng0'), ['10.0.0.1/32', '10.0.0.3/32', '10.0.0.7/32']);
  await second.sync({ 'd/a': [], 'd/c': [] });
  t.same(first.ip.addresses('kpng0'), ['10.0.0.7/32'], 'and still knows what is not its own');
});

t.test('addresses that another program removes are restored at the next check', async (t) => {
  const rig = new KeeperRig(t);
  const all = ['10.0.0.1', '10.0.0.2', 'fd00::1'];
  await rig.sync({ 'd/a': all });
  rig.news();
  rig.ip.link('kpng0').addresses.splice(1, 1);
  await rig.pass(500);
  t.same(rig.ip.addresses('kpng0'), ['10.0.0.1/32', '10.0.0.2/32', 'fd00::1/128']);
  t.same(rig.news(), [
    'lost 1 service addresses are gone from the interface kpng0',
    'repair +1 -0',
  ]);
  rig.ip.links.delete('kpng0');
  await rig.pass(500);
  t.same(rig.ip.addresses('kpng0'), ['10.0.0.1/32', '10.0.0.2/32', 'fd00::1/128']);
  rig.ip.link('kpng0').up = false;
  await rig.pass(500);
  t.ok(rig.ip.link('kpng0').up);
  rig.ip.links.delete('kpng0');
  await rig.sync({ 'd/b': ['10.0.0.4'] });
  t.equal(rig.ip.addresses('kpng0').length, 4, 'a change that finds it missing restores it');
});

t.test('each check probes some addresses, and a listing finds the loss of any', async (t) => {
  const rig = new KeeperRig(t);
  await rig.sync({ 'd/a': many(100) });
  for (const each of [98, 5]) {
    rig.ip.link('kpng0').addresses.splice(each, 1);
    await rig.pass(2000);
    t.equal(rig.ip.addresses('kpng0').length, 100, 'before the next listing');
  }
  await rig.sync({ 'd/a': many(2000) });
  rig.ip.link('kpng0').addresses.splice(1500, 1);
  await rig.pass(6000);
  t.equal(rig.ip.addresses('kpng0').length, 2000);
  rig.ip.link('kpng0').addresses.length = 0;
  await rig.pass(500);
  t.equal(rig.ip.addresses('kpng0').length, 2000, 'and of all of them at once');
});

t.test('a rejected address is reported, left out, and retried later', async (t) => {
  const rig = new KeeperRig(t);
  rig.ip.refuses = (address) => (address === '10.0.0.2' ? 'ipv4: No thanks.' : undefined);
  await rig.sync({ 'd/a': ['10.0.0.1', '10.0.0.2'], 'd/b': ['10.0.0.2', '10.0.0.3'] });
  t.same(rig.ip.addresses('kpng0'), ['10.0.0.1/32', '10.0.0.3/32']);
  t.same(rig.news(), ['failed KPNG_PORTAL_FAILED d/a', 'start +2 -0']);
  t.match(rig.keeper.problems, [
    { code: 'KPNG_PORTAL_FAILED', message: /^d\/a cannot have 10\.0\.0\.2/, count: 2 },
  ]);
  await rig.sync({ 'd/a': ['10.0.0.1'], 'd/b': ['10.0.0.3'] });
  t.same(rig.keeper.problems, [], 'no problem when it is not needed');
  await rig.sync({ 'd/a': ['10.0.0.1', '10.0.0.2'] });
  rig.news();
  await rig.sync({ 'd/c': ['10.0.0.4'] });
  t.equal(rig.ip.batches.at(-1)?.length, 1, 'not with every change');
  await rig.pass(35_000);
  t.same(rig.news().filter((each) => each.startsWith('failed')).length, 1, 'after half a minute');
  rig.ip.refuses = () => undefined;
  await rig.pass(70_000, 5000);
  t.same(rig.ip.addresses('kpng0').length, 4);
  t.same(rig.keeper.problems, []);
});

t.test(
  'an address that cannot be removed is reported as one of its service port, and retried',
  async (t) => {
    const rig = new KeeperRig(t);
    await rig.sync({ 'd/a': ['10.0.0.1'], 'd/b': ['10.0.0.2'] });
    rig.news();
    rig.ip.keeps = (address) => (address === '10.0.0.1' ? 'ipv4: Device busy.' : undefined);
    await rig.sync({ 'd/a': [], 'd/b': [] });
    t.same(rig.ip.addresses('kpng0'), ['10.0.0.1/32']);
    t.same(rig.news(), ['failed KPNG_PORTAL_FAILED d/a', 'change +0 -1']);
    t.match(rig.messages, [/removing 10\.0\.0\.1\/32 on the interface kpng0.*Device busy/]);
    rig.ip.keeps = () => undefined;
    await rig.pass(6000);
    t.same(rig.ip.addresses('kpng0'), []);
  },
);

t.test('without the right to change addresses the sync fails, and works later', async (t) => {
  const rig = new KeeperRig(t);
  rig.ip.broken = DENIED;
  await t.rejects(rig.sync({ 'd/a': ['10.0.0.1'] }), { code: 'KPNG_PORTAL_PERMISSION' });
  await t.rejects(rig.sync({}), { code: 'KPNG_PORTAL_PERMISSION' });
  rig.ip.broken = undefined;
  await rig.sync({});
  t.same(rig.ip.addresses('kpng0'), ['10.0.0.1/32']);
  t.match(rig.news(), [/^failed/, /^failed/, 'start +1 -0']);

  rig.ip.broken = DENIED;
  await t.rejects(rig.sync({ 'd/b': ['10.0.0.2'] }), { code: 'KPNG_PORTAL_PERMISSION' });
  rig.ip.broken = undefined;
  await rig.sync({ 'd/b': [] });
  t.match(rig.news().at(-1), 'repair +0 -0', 'recovery is reported');
});

t.test('an address stays while it has connections, but not forever', async (t) => {
  const rig = new KeeperRig(t);
  await rig.sync({ 'd/a': ['10.0.0.1'], 'd/b': ['10.0.0.2'], 'd/c': ['10.0.0.3'] });
  rig.ip.connections.add('10.0.0.1').add('10.0.0.2');
  await rig.sync({ 'd/a': [], 'd/b': [], 'd/c': [] });
  t.same(rig.ip.addresses('kpng0'), ['10.0.0.1/32', '10.0.0.2/32']);
  rig.ip.connections.delete('10.0.0.2');
  await rig.pass(6000);
  t.same(rig.ip.addresses('kpng0'), ['10.0.0.1/32']);
  await rig.pass(590_000, 10_000);
  t.same(rig.ip.addresses('kpng0'), ['10.0.0.1/32']);
  await rig.pass(20_000, 5000);
  t.same(rig.ip.addresses('kpng0'), []);
});

t.test('reports the addresses of the node without its own', async (t) => {
  const rig = new KeeperRig(t);
  await rig.sync({ 'd/a': ['10.0.0.1', '192.0.2.5'] });
  t.same(
    rig.keeper.hostAddresses().map(({ address }) => address),
    ['127.0.0.1', '::1', '192.0.2.5', '2001:db8::5'],
  );
});

t.test('leaves the addresses at its end, unless configured to remove them', async (t) => {
  for (const [removeOnClose, leaves] of [
    [false, true],
    [true, false],
    // Another process uses them.
    [true, true],
  ] as const) {
    const rig = new KeeperRig(t, { removeOnClose });
    await rig.sync({ 'd/a': ['10.0.0.1'] });
    if (removeOnClose && leaves) rig.keeper.leave();
    await rig.keeper.close();
    await rig.keeper.close();
    t.equal(rig.ip.links.has('kpng0'), leaves);
    t.equal(rig.clock.pending, 0);
  }
});
