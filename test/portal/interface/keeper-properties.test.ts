import assert from 'node:assert/strict';
import * as fc from 'fast-check';
import t from 'tap';
import { exits } from '../../support/fake-exec.ts';
import { FakeIp } from '../../support/fake-ip.ts';
import { KeeperRig } from '../../support/keeper-rig.ts';
import { holdsAsync } from '../../support/property.ts';

const KEPT = ['10.0.0.1', '10.0.0.2', '10.0.0.3', 'fd00::1', 'fd00::2'];
const NAME = 'eth0';
const NODE = new Set(['192.0.2.5', '2001:db8::5']);

const address = fc.constantFrom(...KEPT);
const step = fc.oneof(
  fc.record({
    do: fc.constant('sync' as const),
    wants: fc.dictionary(fc.constantFrom('d/a', 'd/b', 'd/c'), fc.subarray(KEPT)),
  }),
  fc.record({ do: fc.constantFrom('others add', 'others remove', 'connect', 'refuse'), address }),
  fc.record({ do: fc.constantFrom('flush', 'break', 'mend', 'kill', 'wait') }),
);

/** A host on which everything happens that can, and what should be there. */
class World {
  readonly ip = new FakeIp();
  wants: Readonly<Record<string, readonly string[]>> = {};
  /** Addresses that another program has put there. */
  readonly foreign = new Set<string>();
  readonly #ends: (() => Promise<void>)[] = [];
  #rig = this.#start();

  /** A new process. The timers of the previous one, which has been killed, fire no more. */
  #start(): KeeperRig {
    const parent = { teardown: (end: () => Promise<void>) => this.#ends.push(end) };
    return new KeeperRig(parent, { ip: this.ip, name: NAME });
  }

  async restart(): Promise<void> {
    this.#rig = this.#start();
    await this.sync();
  }

  async sync(): Promise<void> {
    await this.#rig.sync({ 'd/a': [], 'd/b': [], 'd/c': [], ...this.wants }).catch(() => undefined);
  }

  pass(ms: number, stepMs: number): Promise<void> {
    return this.#rig.pass(ms, stepMs);
  }

  /** What is on the interface beside the addresses of the node. */
  addresses(): string[] {
    const all = this.ip.link(NAME).addresses.map((each) => each.address);
    return all.filter((each) => !NODE.has(each)).sort();
  }

  remove(which: (address: string) => boolean): void {
    const { addresses } = this.ip.link(NAME);
    addresses.splice(0, Infinity, ...addresses.filter((each) => !which(each.address)));
    for (const each of this.foreign) if (which(each)) this.foreign.delete(each);
  }

  async close(): Promise<void> {
    for (const end of this.#ends) await end();
  }
}

async function take(world: World, each: { do: string; address?: string; wants?: object }) {
  const { ip, foreign } = world;
  const { address = '' } = each;
  if (each.wants !== undefined) {
    world.wants = each.wants as World['wants'];
    await world.sync();
  }
  if (each.do === 'others add' && !world.addresses().includes(address)) {
    ip.link(NAME).addresses.push({ address, prefix: address.includes(':') ? 128 : 32 });
    foreign.add(address);
  }
  if (each.do === 'others remove') world.remove((one) => one === address);
  if (each.do === 'flush') world.remove((one) => !NODE.has(one));
  if (each.do === 'connect') ip.connections.add(address);
  if (each.do === 'refuse') ip.refuses = (one) => (one === address ? 'No thanks.' : undefined);
  if (each.do === 'break') ip.broken = exits('RTNETLINK answers: Operation not permitted\n');
  if (each.do === 'mend') ip.broken = undefined;
  if (each.do === 'kill') await world.restart();
  if (each.do === 'wait') await world.pass(3000, 500);
}

t.test(
  'property: foreign addresses always stay, and the end state is the desired one',
  async (t) => {
    await holdsAsync(
      t,
      fc.asyncProperty(fc.array(step, { maxLength: 14 }), async (steps) => {
        const world = new World();
        for (const each of steps) {
          await take(world, each);
          for (const one of world.foreign) assert.ok(world.addresses().includes(one), one);
        }
        world.ip.broken = undefined;
        world.ip.refuses = () => undefined;
        world.ip.connections.clear();
        await world.sync();
        await world.pass(60_000, 5000);
        const wanted = new Set(Object.values(world.wants).flat());
        assert.deepEqual(world.addresses(), [...new Set([...wanted, ...world.foreign])].sort());
        await world.close();
      }),
    );
  },
);

t.test('an address that another program re-added is not removed', async (t) => {
  const world = new World();
  await take(world, { do: 'sync', wants: { 'd/a': ['10.0.0.3', '10.0.0.2'] } });
  await take(world, { do: 'flush' });
  await take(world, { do: 'others add', address: '10.0.0.3' });
  await take(world, { do: 'sync', wants: {} });
  t.same(world.addresses(), ['10.0.0.3']);
  await world.close();
});
