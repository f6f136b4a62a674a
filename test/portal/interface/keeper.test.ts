import assert from 'node:assert/strict';
import * as fc from 'fast-check';
import t from 'tap';
import { exits } from '../../support/fake-exec.ts';
import { FakeIp } from '../../support/fake-ip.ts';
import { KeeperRig } from '../../support/keeper-rig.ts';
import { holdsAsync } from '../../support/property.ts';

/** `10.1.x.y`, all different. */
const many = (count: number): string[] =>
  Array.from({ length: count }, (_, n) => `10.1.${n >> 8}.${n & 255}`);

const DENIED = exits('RTNETLINK answers: Operation not permitted\nCommand failed -:1\n');

t.test('a sync costs what it changes: one run, and no listing', async (t) => {
  const rig = new KeeperRig(t);
  await rig.sync(Object.fromEntries(many(500).map((each) => [`d/s ${each}`, [each]])));
  const before = rig.ip.commands.length;
  await rig.sync({ 'd/new': ['10.9.0.1'] });
  t.same(rig.ip.batches.at(-1), ['address add 10.9.0.1/32 dev kpng0 scope host metric 27504']);
  t.equal(rig.ip.commands.length, before + 1);
  rig.news();
  await rig.sync({ 'd/new': ['10.9.0.1'] });
  t.same(rig.news(), []);
  t.equal(rig.ip.commands.length, before + 1, 'no change, no program');
  await rig.sync({ 'd/other': ['10.9.0.1'], 'd/new': [] });
  t.equal(rig.ip.commands.length, before + 1, 'an address that moves to another service stays');
  await rig.sync({ 'd/new': ['10.9.0.1'], 'd/other': [] });
  t.ok(rig.ip.addresses('kpng0').includes('10.9.0.1/32'));
  await rig.sync({ 'd/new': [] });
  const { length } = rig.ip.commands;
  await rig.sync({});
  t.equal(rig.ip.commands.length, length, 'an address is removed once');
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
  for (const [count, lost, ms] of [
    [100, 98, 2000],
    [100, 5, 2000],
    [2000, 1500, 6000],
  ] as const) {
    await rig.sync({ 'd/a': many(count) });
    rig.ip.link('kpng0').addresses.splice(lost, 1);
    await rig.pass(ms);
    t.equal(rig.ip.addresses('kpng0').length, count);
  }
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
  t.same(rig.news().filter((each) => each.startsWith('failed')).length, 4, 'ever less often');
  rig.ip.refuses = () => undefined;
  await rig.pass(70_000, 5000);
  t.same(rig.ip.addresses('kpng0').length, 4);
  t.same(rig.keeper.problems, []);
});

t.test('an address that cannot be removed is reported, and retried', async (t) => {
  const rig = new KeeperRig(t);
  await rig.sync({ 'd/a': ['10.0.0.1'], 'd/b': ['10.0.0.2'] });
  rig.news();
  rig.ip.keeps = (address) => (address === '10.0.0.1' ? 'ipv4: Device busy.' : undefined);
  await rig.sync({ 'd/a': [], 'd/b': [] });
  t.same(rig.ip.addresses('kpng0'), ['10.0.0.1/32']);
  t.same(rig.news(), ['failed KPNG_PORTAL_FAILED 10.0.0.1', 'change +0 -1']);
  t.match(rig.messages, [/removing 10\.0\.0\.1\/32 on the interface kpng0.*Device busy/]);
  await rig.sync({ 'd/b': ['10.0.0.3'] });
  await rig.sync({ 'd/b': [] });
  t.same(rig.news(), ['change +1 -0', 'change +0 -1'], 'not with every change');
  rig.ip.keeps = () => undefined;
  await rig.pass(6000);
  t.same(rig.ip.addresses('kpng0'), []);
});

t.test('without the right to change addresses the sync fails, and works later', async (t) => {
  const rig = new KeeperRig(t);
  for (const [wants, later, recovery] of [
    [{ 'd/a': ['10.0.0.1'] }, {}, 'start +1 -0'],
    [{ 'd/b': ['10.0.0.2'] }, { 'd/b': [] }, 'repair +0 -0'],
  ] as const) {
    rig.ip.broken = DENIED;
    await t.rejects(rig.sync(wants), { code: 'KPNG_PORTAL_PERMISSION' });
    await t.rejects(rig.sync({}), { code: 'KPNG_PORTAL_PERMISSION' });
    rig.ip.broken = undefined;
    await rig.sync(later);
    t.match(rig.news(), [/^failed/, /^failed/, recovery]);
  }
  t.same(rig.ip.addresses('kpng0'), ['10.0.0.1/32']);
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
  await rig.sync({ 'd/b': ['10.0.0.4'] });
  await rig.sync({ 'd/b': [] });
  const looks = rig.ip.commands.filter(({ file }) => file === 'ss').length;
  t.equal(looks, 3, 'connections are listed every five seconds, and for an address that is new');
  await rig.pass(590_000, 10_000);
  t.same(rig.ip.addresses('kpng0'), ['10.0.0.1/32']);
  // Since the last use.
  await rig.sync({ 'd/a': ['10.0.0.1'] });
  await rig.sync({ 'd/a': [] });
  await rig.pass(590_000, 10_000);
  t.same(rig.ip.addresses('kpng0'), ['10.0.0.1/32']);
  await rig.pass(20_000, 5000);
  t.same(rig.ip.addresses('kpng0'), []);
});

t.test('leaves the addresses at its end, unless asked to remove them', async (t) => {
  for (const removes of [false, true]) {
    const rig = new KeeperRig(t);
    await rig.sync({ 'd/a': ['10.0.0.1'] });
    await rig.keeper.close(removes);
    t.equal(rig.ip.links.has('kpng0'), !removes);
    t.equal(rig.clock.pending, 0);
    await new KeeperRig(t, { ip: rig.ip }).sync({ 'd/a': ['10.0.0.1'] });
    await rig.keeper.close(removes);
    t.same(rig.ip.addresses('kpng0'), ['10.0.0.1/32'], 'those of the next process stay');
  }
});

const KEPT = ['10.0.0.1', '10.0.0.2', '10.0.0.3', 'fd00::1', 'fd00::2'];
const NAME = 'eth0';
const NODE = new Set(['192.0.2.5', '2001:db8::5']);

const OTHERS = ['others add', 'others remove', 'connect', 'refuse', 'flush', 'break', 'mend'];
const step = fc.record({
  what: fc.constantFrom('sync', 'sync', 'sync', 'kill', 'wait', ...OTHERS),
  address: fc.constantFrom(...KEPT),
  wants: fc.dictionary(fc.constantFrom('d/a', 'd/b', 'd/c'), fc.subarray(KEPT)),
});

/** A host on which everything happens that can, and what should be there. */
class World {
  readonly ip = new FakeIp();
  wants: Readonly<Record<string, readonly string[]>> = {};
  /** Addresses that another program has put there. */
  readonly foreign = new Set<string>();
  readonly #ends: (() => Promise<void>)[] = [];
  rig = this.#start();

  /** A new process. The timers of the previous one, which has been killed, fire no more. */
  #start(): KeeperRig {
    const parent = { teardown: (end: () => Promise<void>) => this.#ends.push(end) };
    return new KeeperRig(parent, { ip: this.ip, name: NAME });
  }

  async sync(wants = this.wants): Promise<void> {
    this.wants = wants;
    await this.rig.sync({ 'd/a': [], 'd/b': [], 'd/c': [], ...wants }).catch(() => undefined);
  }

  async take(what: string, address: string, wants: World['wants']): Promise<void> {
    const { ip } = this;
    if (what === 'sync') await this.sync(wants);
    if (what === 'others add' && !this.addresses().includes(address)) {
      ip.link(NAME).addresses.push({ address, prefix: address.includes(':') ? 128 : 32 });
      this.foreign.add(address);
    }
    if (what === 'others remove') this.remove([address]);
    if (what === 'flush') this.remove(KEPT);
    if (what === 'connect') ip.connections.add(address);
    if (what === 'refuse') ip.refuses = (one) => (one === address ? 'No thanks.' : undefined);
    if (what === 'break') ip.broken = DENIED;
    if (what === 'mend') ip.broken = undefined;
    if (what === 'wait') await this.rig.pass(3000, 500);
    if (what !== 'kill') return;
    this.rig = this.#start();
    await this.sync();
  }

  /** What is on the interface beside the addresses of the node. */
  addresses(): string[] {
    const all = this.ip.link(NAME).addresses.map((each) => each.address);
    return all.filter((each) => !NODE.has(each)).sort();
  }

  remove(some: readonly string[]): void {
    const { addresses } = this.ip.link(NAME);
    addresses.splice(0, Infinity, ...addresses.filter((each) => !some.includes(each.address)));
    for (const each of some) this.foreign.delete(each);
  }

  async close(): Promise<void> {
    for (const end of this.#ends) await end();
  }
}

t.test('foreign addresses always stay, and the end state is the desired one', async (t) => {
  await holdsAsync(
    t,
    fc.asyncProperty(fc.array(step, { maxLength: 14 }), async (steps) => {
      const world = new World();
      for (const { what, address, wants } of steps) {
        await world.take(what, address, wants);
        for (const one of world.foreign) assert.ok(world.addresses().includes(one), one);
      }
      world.ip.broken = undefined;
      world.ip.refuses = () => undefined;
      world.ip.connections.clear();
      await world.sync();
      await world.rig.pass(60_000, 5000);
      const wanted = new Set(Object.values(world.wants).flat());
      assert.deepEqual(world.addresses(), [...new Set([...wanted, ...world.foreign])].sort());
      await world.close();
    }),
  );
});
