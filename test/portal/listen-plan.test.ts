import * as fc from 'fast-check';
import assert from 'node:assert/strict';
import t from 'tap';
import { ClaimTable } from '../../src/portal/claims.ts';
import { type PortalSpec, portalText, type ServicePortPortals } from '../../src/portal/portal.ts';
import { PortAllocator } from '../../src/portal/proxy-ports.ts';
import { RedirectPlan } from '../../src/portal/redirect-plan.ts';
import { overlap } from '../support/fake-host.ts';
import { portal, wants } from '../support/portals.ts';
import { holds } from '../support/property.ts';

const RANGE = { first: 50_000, last: 50_007 };

/** Portals that are in each other's way. A service port may name one twice. */
const portals = fc
  .record({
    texts: fc.array(
      fc.constantFrom(
        'clusterIP 10.0.0.1:80',
        'clusterIP fd00::1:80',
        'nodePort 30000',
        'externalIP 10.0.0.2:80',
        'externalIP 10.0.0.2:30000',
        'externalIP 0.0.0.0:80',
        'externalIP :::80',
      ),
      { maxLength: 4 },
    ),
    udp: fc.boolean(),
  })
  .map(({ texts, udp }) => texts.map((text) => portal(udp ? `${text}/UDP` : text)));

const NAMES = ['d/s0', 'd/s1', 'd/s2', 'd/s3'] as const;

const steps = fc.array(
  fc.record({
    set: fc.dictionary(fc.constantFrom(...NAMES), portals, { maxKeys: 3 }),
    remove: fc.subarray([...NAMES]),
    splitTraffic: fc.boolean(),
    served: fc.boolean(),
  }),
  { maxLength: 10 },
);

/** Node ports and addresses do not conflict. */
function collide(one: PortalSpec, other: PortalSpec): boolean {
  if (one.protocol !== other.protocol || one.port !== other.port) return false;
  if (one.address === undefined || other.address === undefined)
    return one.address === other.address;
  return overlap(one.address, other.address);
}

t.test('after any steps, each claim has one holder, or a reason', async (t) => {
  holds(
    t,
    fc.property(steps, (all) => {
      const table = new ClaimTable();
      const wanted = new Map<string, readonly PortalSpec[]>();
      let before = new Map<string, PortalSpec>();
      const named = (name: string, list: readonly PortalSpec[]) =>
        list.map((each) => [`${name} ${portalText(each)}`, each] as const);
      for (const { set, remove } of all) {
        for (const name of remove) wanted.delete(name);
        for (const [name, list] of Object.entries(set)) wanted.set(name, list);
        const won = table.update(new Map(Object.entries(set)), remove);
        const held = new Map([...wanted.keys()].flatMap((name) => named(name, table.held(name))));
        for (const [key, one] of held) {
          for (const [other, two] of held) assert.ok(key === other || !collide(one, two));
          const [owner = ''] = key.split(' ');
          assert.ok(before.has(key) || owner in set || won.has(owner));
        }
        const unmet = new Map([...wanted].flatMap(([name, list]) => named(name, list)));
        for (const key of held.keys()) unmet.delete(key);
        for (const [key, claim] of unmet) {
          const isRemoved = remove.some((name) => key.startsWith(`${name} `));
          assert.ok(!before.has(key) || isRemoved, 'a holder keeps it');
          assert.ok([...held.values()].some((each) => collide(each, claim)));
        }
        assert.equal(table.problem()?.count ?? 0, unmet.size);
        before = held;
      }
    }),
  );
});

t.test('redirects go to own listeners, and no port is lost', async (t) => {
  holds(
    t,
    fc.property(steps, (all) => {
      const allocator = new PortAllocator(RANGE, Math.random);
      const plan = new RedirectPlan(allocator, { 4: '0.0.0.0', 6: '::' });
      const sync = (set: readonly ServicePortPortals[], remove: readonly string[]): void => {
        const planned = plan.plan(set, remove);
        plan.settle(
          Array.from(planned, ([name, list]) => [
            name,
            list.map((listen) => ({ listen, boundPort: listen.port })),
          ]),
        );
      };
      for (const { set, remove, splitTraffic, served } of all) {
        const wanted = Object.entries(set).map(([servicePort, list]) => {
          return {
            servicePort,
            portals: list,
            splitTraffic,
            served: { internal: served, external: true },
          };
        });
        sync(
          wanted,
          remove.filter((name) => !Object.hasOwn(set, name)),
        );
        for (const name of NAMES) {
          const own = new Set(plan.listen(name).map(({ port }) => port));
          for (const { proxyPort } of plan.redirectsOf(name)) {
            assert.ok(proxyPort === undefined || own.has(proxyPort));
          }
        }
        const ports = NAMES.flatMap((name) => plan.listen(name)).map(({ port }) => port);
        assert.equal(new Set(ports).size, ports.length);
      }
      sync([], NAMES);
      const free = new Set(Array.from({ length: 8 }, () => allocator.allocate()));
      assert.ok(free.size === 8 && !free.has(undefined));
    }),
  );
});

t.test('N2: among new claims the first by name wins, in any order', async (t) => {
  const claims = ['d/x', 'd/y'].map((name) => [name, [portal('nodePort 30080')]] as const);
  for (const set of [claims, claims.toReversed()]) {
    const table = new ClaimTable();
    table.update(new Map([...set, ['d/z', [portal('nodePort 30080/UDP')]]]), []);
    t.same(
      ['d/x', 'd/y', 'd/z'].map((name) => table.held(name).length),
      [1, 0, 1],
    );
  }
});

t.test('hundreds of thousands of unmet claims do not slow a later update', async (t) => {
  const table = new ClaimTable();
  let reads = 0;
  // Looking at a claim means to read its address.
  const counted = (address: string): PortalSpec => ({
    ...portal(`externalIP ${address}:80`),
    get address() {
      reads += 1;
      return address;
    },
  });
  const addresses = Array.from({ length: 1000 }, (_, n) => `10.1.${n >> 8}.${n & 255}`);
  const claims = addresses.map(counted);
  table.update(new Map(['a', 'b', 'c', 'd', 'e'].map((owner) => [owner, claims])), []);
  const problem = () => table.problem();
  t.match(problem(), { count: 4000 });
  const cost = (action: () => unknown): number => {
    reads = 0;
    action();
    return reads;
  };
  t.ok(cost(problem) < 20, 'one is described, whatever their number');
  t.ok(cost(() => table.update(new Map([['new', [counted('10.2.0.1')]]]), [])) < 40);
  t.ok(cost(() => table.update(new Map(), ['new'])) < 40, 'on the same port as all of them');
  table.update(new Map([['b', claims.slice(1)]]), []);
  t.match(problem(), { count: 3999, message: /^c cannot have 10\.1\.0\.0:80\/TCP: a has it/ });
});

t.test('a released proxy port is not reused in the same plan', (t) => {
  for (const random of [0, 0.4, 0.99]) {
    const allocator = new PortAllocator({ first: 50_000, last: 50_002 }, () => random);
    const plan = new RedirectPlan(allocator, { 4: '0.0.0.0', 6: '::' });
    const [one, two] = ['clusterIP 10.0.0.1:80', 'clusterIP fd00::1:80'];
    const before = plan.plan([wants('d/a', one, two)], []).get('d/a') ?? [];
    const after = plan.plan([wants('d/a', one), wants('d/b', 'clusterIP 10.0.0.2:80')], []);
    const [fresh] = after.get('d/b') ?? [];
    // Until the plan is carried out, rules redirect the previous clients there.
    t.notOk(before.some(({ port }) => port === fresh?.port));
    t.same(plan.problems(), []);
  }
  t.end();
});
