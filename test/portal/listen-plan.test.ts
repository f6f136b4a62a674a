import * as fc from 'fast-check';
import assert from 'node:assert/strict';
import t from 'tap';
import { AddressPortal } from '../../src/portal/address.ts';
import { ClaimTable } from '../../src/portal/claims.ts';
import {
  type PortalPlan,
  type PortalSpec,
  portalText,
  type ServicePortPortals,
} from '../../src/portal/portal.ts';
import { PortAllocator } from '../../src/portal/proxy-ports.ts';
import { RedirectPlan } from '../../src/portal/redirect-plan.ts';
import type { ListenSpec } from '../../src/proxysocket/spec.ts';
import { overlap } from '../support/fake-engine.ts';
import { portal, wants } from '../support/portals.ts';
import { holds } from '../support/property.ts';

const RANGE = { first: 50_000, last: 50_007 };

type Holder = readonly [name: string, portal: PortalSpec];

const textOf = ([name, each]: Holder): string => `${name} ${portalText(each)}`;

/** A service port may name a portal twice. */
function distinct(holders: Holder[]): Holder[] {
  return [...new Map(holders.map((each) => [textOf(each), each])).values()];
}

/** A plan with an engine beside it that can always listen. */
abstract class Host {
  abstract readonly plan: RedirectPlan | AddressPortal;
  readonly listen = new Map<string, readonly ListenSpec[]>();
  readonly wanted = new Map<string, ServicePortPortals>();

  /** The portals of a service port that clients reach. */
  abstract served(name: string): readonly PortalSpec[];
  abstract overlap(one: PortalSpec, other: PortalSpec): boolean;

  sync(set: readonly ServicePortPortals[], remove: readonly string[] = []): PortalPlan {
    const gone = remove.filter((name) => !set.some(({ servicePort }) => servicePort === name));
    const plan = this.plan.plan(set, gone);
    for (const name of gone) {
      this.listen.delete(name);
      this.wanted.delete(name);
    }
    for (const each of set) this.wanted.set(each.servicePort, each);
    for (const [name, list] of plan) this.listen.set(name, list);
    const bound = [...plan].map(([name, list]) => {
      return [name, list.map((listen) => ({ listen, boundPort: listen.port }))] as const;
    });
    this.plan.settle(bound);
    return plan;
  }

  holders(): Holder[] {
    return distinct(
      [...this.wanted.keys()].flatMap((name) => this.served(name).map((each) => [name, each])),
    );
  }

  collide(one: PortalSpec, other: PortalSpec): boolean {
    const isSamePort = one.protocol === other.protocol && one.port === other.port;
    return isSamePort && this.overlap(one, other);
  }
}

class RedirectHost extends Host {
  readonly allocator = new PortAllocator(RANGE, Math.random);
  readonly plan = new RedirectPlan({
    allocator: this.allocator,
    bindAddresses: { 4: '0.0.0.0', 6: '::' },
  });

  served(name: string): readonly PortalSpec[] {
    return [...new Set(this.plan.redirectsOf(name).map((each) => each.portal))];
  }

  /** Node ports and addresses do not conflict. */
  overlap({ address: one }: PortalSpec, { address: other }: PortalSpec): boolean {
    return one === undefined || other === undefined ? one === other : overlap(one, other);
  }
}

/** A host without IPv6, where node ports take the wildcard address. */
class AddressHost extends Host {
  readonly plan = new AddressPortal({
    interfaces: () => [{ address: '127.0.0.1', loopback: true }],
  });

  served(name: string): readonly PortalSpec[] {
    const listen = this.listen.get(name) ?? [];
    const portals = this.wanted.get(name)?.portals ?? [];
    return portals.filter(({ address = '0.0.0.0', port }) =>
      listen.some((each) => each.address === address && each.port === port),
    );
  }

  overlap({ address: one = '0.0.0.0' }: PortalSpec, other: PortalSpec): boolean {
    return overlap(one, other.address ?? '0.0.0.0');
  }
}

/** Service ports that share their addresses and node ports, so that they are in each other's way. */
const wanted = fc
  .record({
    slot: fc.nat(3),
    portals: fc.array(
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
    splitTraffic: fc.boolean(),
    served: fc.boolean(),
  })
  .map(({ slot, portals, udp, splitTraffic, served }): ServicePortPortals => ({
    servicePort: `d/s${slot}`,
    portals: portals.map((text) => portal(udp ? `${text}/UDP` : text)),
    splitTraffic,
    served: { internal: served, external: true },
  }));

const steps = fc.array(
  fc.record({
    set: fc.uniqueArray(wanted, { maxLength: 3, selector: ({ servicePort }) => servicePort }),
    remove: fc.subarray(['d/s0', 'd/s1', 'd/s2', 'd/s3']),
  }),
  { maxLength: 10 },
);

for (const Kind of [RedirectHost, AddressHost]) {
  t.test(`${Kind.name}: after any steps, each portal has one holder, or a reason`, async (t) => {
    holds(
      t,
      fc.property(steps, (all) => {
        const host = new Kind();
        for (const { set, remove } of all) {
          const before = new Set(host.holders().map(textOf));
          host.sync(set, remove);
          const holders = host.holders();
          for (const [index, [, one]] of holders.entries()) {
            for (const [, other] of holders.slice(index + 1)) assert.ok(!host.collide(one, other));
          }
          const now = new Set(holders.map(textOf));
          const wants = distinct(
            [...host.wanted].flatMap(([name, { portals }]) => portals.map((each) => [name, each])),
          );
          const unmet = wants.filter((each) => !now.has(textOf(each)));
          for (const each of unmet) {
            assert.ok(!before.has(textOf(each)) || remove.includes(each[0]), 'a holder keeps it');
            assert.ok(holders.some(([, holder]) => host.collide(holder, each[1])));
          }
          const conflicts = host.plan
            .problems()
            .filter(({ code }) => code === 'KPNG_PORTAL_CONFLICT');
          const count = conflicts.reduce((sum, each) => sum + (each.count ?? 1), 0);
          assert.equal(count, unmet.length);
        }
      }),
    );
  });
}

t.test(
  'each redirect goes to a listener of its own service port, and no port is lost',
  async (t) => {
    holds(
      t,
      fc.property(steps, (all) => {
        const host = new RedirectHost();
        for (const { set, remove } of all) {
          host.sync(set, remove);
          for (const name of host.wanted.keys()) {
            for (const { proxyPort } of host.plan.redirectsOf(name)) {
              const own = host.listen.get(name)?.map(({ port }) => port);
              assert.ok(proxyPort === undefined || own?.includes(proxyPort));
            }
          }
          const ports = [...host.listen.values()].flat().map(({ port }) => port);
          assert.equal(new Set(ports).size, ports.length);
        }
        host.sync([], [...host.wanted.keys()]);
        const free = new Set(Array.from({ length: 8 }, () => host.allocator.allocate()));
        assert.ok(free.size === 8 && !free.has(undefined));
      }),
    );
  },
);

t.test('N2: among new claims the first by name wins, in any order', async (t) => {
  const both = [wants('d/x', 'nodePort 30080'), wants('d/y', 'nodePort 30080')];
  for (const set of [both, both.toReversed()]) {
    const host = new AddressHost();
    host.sync([...set, wants('d/z', 'nodePort 30080/UDP')]);
    t.same(host.holders().map(textOf).sort(), [
      'd/x node port 30080/TCP',
      'd/z node port 30080/UDP',
    ]);
  }
});

t.test('hundreds of thousands of unmet claims do not slow a later update', async (t) => {
  const table = new ClaimTable<PortalSpec>();
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
    const plan = new RedirectPlan({ allocator, bindAddresses: { 4: '0.0.0.0', 6: '::' } });
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
