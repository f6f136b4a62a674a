import * as fc from 'fast-check';
import t from 'tap';
import { claimKey, ClaimTable } from '../../src/portal/claims.ts';
import type { PortalPlan, PortalSpec, ServicePortPortals } from '../../src/portal/portal.ts';
import { PortAllocator } from '../../src/portal/proxy-ports.ts';
import { RedirectPlan } from '../../src/portal/redirect-plan.ts';
import type { ListenSpec } from '../../src/proxysocket/spec.ts';
import { overlap } from '../support/fake-engine.ts';
import { portal } from '../support/portals.ts';
import { holds } from '../support/property.ts';

type Table = ClaimTable<PortalSpec>;

/** `10.0.0.1:80`, `:80` for the wildcard, `udp 10.0.0.1:80`. */
function claim(text: string): PortalSpec {
  const udp = text.startsWith('udp ');
  const place = udp ? text.slice(4) : text;
  const at = place.lastIndexOf(':');
  const address = place.slice(0, at) || '0.0.0.0';
  const port = Number(place.slice(at + 1));
  const protocol = udp ? 'UDP' : 'TCP';
  return { kind: 'externalIP', protocol, address, port, traffic: 'external', sourceRanges: [] };
}

const holdsClaim = (table: Table, owner: string, wanted: PortalSpec): boolean =>
  table.held(owner).some((each) => claimKey(each) === claimKey(wanted));

/** Sets and removes, and returns the owners that were affected, in order. */
function update(table: Table, set: Record<string, string[]>, remove: string[] = []): string[] {
  const claims = new Map(Object.entries(set).map(([owner, list]) => [owner, list.map(claim)]));
  return [...table.update(claims, remove)].sort();
}

/** The claim that the problem names, and how many wait. */
function waiting(table: Table): [number, string?] {
  const problem = table.problem((each) => each);
  if (problem === undefined) return [0];
  return [problem.count ?? 1, problem.message.replace(/ has it; .*$/, '')];
}

t.test('N2: among new claims the first by name wins, in any order', async (t) => {
  for (const order of [
    ['x', 'y'],
    ['y', 'x'],
  ]) {
    const table = new ClaimTable<PortalSpec>();
    update(table, Object.fromEntries(order.map((owner) => [owner, [':30080']])));
    t.ok(holdsClaim(table, 'x', claim(':30080')));
    t.same(update(table, { z: ['udp :30080'] }), ['z'], 'the other protocol is another place');
  }
});

t.test('when a wildcard is released, all waiting single addresses get theirs', async (t) => {
  const table = new ClaimTable<PortalSpec>();
  update(table, { wild: [':80'] });
  update(table, { a: ['127.0.0.1:80'], b: ['127.0.0.2:80'], c: ['127.0.0.1:80'] });
  t.equal(waiting(table)[0], 3);
  t.same(update(table, {}, ['wild']), ['a', 'b', 'wild']);
  t.same(waiting(table), [1, 'c cannot have 127.0.0.1:80/TCP: a']);
});

t.test('hundreds of thousands of unmet claims do not slow a later update', async (t) => {
  const table = new ClaimTable<PortalSpec>();
  let reads = 0;
  // Looking at a claim means to read its address.
  const counted = (address: string): PortalSpec => {
    return {
      ...claim(`${address}:80`),
      get address() {
        reads += 1;
        return address;
      },
    };
  };
  const addresses = Array.from({ length: 1000 }, (_, n) => `10.1.${n >> 8}.${n & 255}`);
  const claims = addresses.map(counted);
  table.update(new Map(['a', 'b', 'c', 'd', 'e'].map((owner) => [owner, claims])), []);
  t.same(waiting(table)[0], 4000);
  const cost = (action: () => unknown): number => {
    reads = 0;
    action();
    return reads;
  };
  t.ok(cost(() => waiting(table)) < 20, 'one is described, whatever their number');
  t.ok(cost(() => table.update(new Map([['new', [counted('10.2.0.1')]]]), [])) < 40);
  t.ok(cost(() => table.update(new Map(), ['new'])) < 40, 'on the same port as all of them');
  table.update(new Map([['b', claims.slice(1)]]), []);
  t.same(waiting(table), [3999, 'c cannot have 10.1.0.0:80/TCP: a'], 'the next one is named');
});

t.test('after any steps, holders never overlap, and no claim waits without a reason', async (t) => {
  const place = fc.constantFrom(
    '10.0.0.1:80',
    '10.0.0.2:80',
    ':80',
    '::1:80',
    ':::80',
    '10.0.0.1:81',
  );
  const step = fc.record({
    set: fc.dictionary(fc.constantFrom('a', 'b', 'c', 'd'), fc.array(place, { maxLength: 3 })),
    remove: fc.uniqueArray(fc.constantFrom('a', 'b', 'c', 'd'), { maxLength: 2 }),
  });
  holds(
    t,
    fc.property(fc.array(step, { maxLength: 20 }), (steps) => {
      const table = new ClaimTable<PortalSpec>();
      const wanted = new Map<string, PortalSpec[]>();
      for (const { set, remove } of steps) {
        const before = new Set(
          held(table, wanted).map(({ owner, claim }) => owner + claimKey(claim)),
        );
        const kept = new Map(wanted);
        for (const owner of remove) wanted.delete(owner);
        for (const [owner, list] of Object.entries(set)) wanted.set(owner, list.map(claim));
        update(table, set, remove);
        const holders = held(table, wanted);
        const stillWanted = [...kept].flatMap(([owner, claims]) =>
          claims.flatMap((each) => {
            const wants = wanted.get(owner)?.some((other) => claimKey(other) === claimKey(each));
            return wants === true ? [owner + claimKey(each)] : [];
          }),
        );
        const now = new Set(holders.map(({ owner, claim }) => owner + claimKey(claim)));
        if (stillWanted.some((key) => before.has(key) && !now.has(key))) return false;
        for (const [index, one] of holders.entries()) {
          for (const other of holders.slice(index + 1))
            if (collide(one.claim, other.claim)) return false;
        }
        const unmet = [...wanted].flatMap(([owner, claims]) => {
          const keys = new Map(claims.map((each) => [claimKey(each), each]));
          return [...keys.values()].filter((each) => !holdsClaim(table, owner, each));
        });
        if (unmet.length !== waiting(table)[0]) return false;
        if (unmet.some((each) => !holders.some((holder) => collide(holder.claim, each))))
          return false;
      }
      return true;
    }),
  );
});

function held(
  table: Table,
  wanted: ReadonlyMap<string, readonly PortalSpec[]>,
): { owner: string; claim: PortalSpec }[] {
  return [...wanted].flatMap(([owner, claims]) => {
    const keys = new Map(claims.map((each) => [claimKey(each), each]));
    return [...keys.values()]
      .filter((each) => holdsClaim(table, owner, each))
      .map((claim) => ({ owner, claim }));
  });
}

function collide(a: PortalSpec, b: PortalSpec): boolean {
  const isSamePort = a.protocol === b.protocol && a.port === b.port;
  return isSamePort && overlap(a.address ?? '', b.address ?? '');
}

const RANGE = { first: 50_000, last: 50_007 };

/** Service ports that share their addresses and node ports, so that they are in each other's way. */
const wanted = fc
  .record({
    slot: fc.nat(3),
    portals: fc.uniqueArray(
      fc.constantFrom(
        'clusterIP 10.0.0.1:80',
        'clusterIP fd00::1:80',
        'nodePort 30000',
        'externalIP 10.0.0.2:80',
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

/** A plan with an engine beside it that can always listen. */
class Host {
  readonly allocator = new PortAllocator(RANGE, Math.random);
  readonly plan = new RedirectPlan({
    allocator: this.allocator,
    bindAddresses: { 4: '0.0.0.0', 6: '::' },
  });
  readonly listen = new Map<string, readonly ListenSpec[]>();
  readonly wanted = new Map<string, ServicePortPortals>();

  sync(set: readonly ServicePortPortals[], remove: readonly string[]): PortalPlan {
    const gone = remove.filter((name) => !set.some(({ servicePort }) => servicePort === name));
    const plan = this.plan.plan(set, gone);
    for (const name of gone) {
      this.listen.delete(name);
      this.wanted.delete(name);
    }
    for (const each of set) this.wanted.set(each.servicePort, each);
    for (const [name, list] of plan.listen) this.listen.set(name, list);
    this.plan.settle(
      new Map(
        [...plan.listen].map(([name, list]) => [
          name,
          list.map((listen) => ({ listen, boundPort: listen.port })),
        ]),
      ),
    );
    return plan;
  }

  /** `family address -> service port traffic`, or `nowhere`. */
  leads(): string[] {
    return [...this.wanted.keys()].flatMap((name) =>
      this.plan
        .redirects(name)
        .map(({ family, portal: { address = 'node', port, protocol }, proxyPort }) => {
          const listen = this.listen.get(name)?.find((each) => each.port === proxyPort);
          const end = proxyPort === undefined ? 'nowhere' : `${name} ${listen?.traffic}`;
          return `${family} ${address} ${port} ${protocol} -> ${end}`;
        }),
    );
  }
}

t.test('each portal has one holder, and is redirected to one of its listeners', (t) => {
  holds(
    t,
    fc.property(steps, (all) => {
      const host = new Host();
      for (const { set, remove } of all) {
        const { problems } = host.sync(set, remove);
        const leads = host.leads();
        const places = leads.map((lead) => lead.split(' -> ')[0]);
        if (new Set(places).size !== places.length) return false;
        if (leads.some((lead) => lead.endsWith('undefined'))) return false;
        const ports = [...host.listen.values()].flat().map(({ port }) => port);
        if (new Set(ports).size !== ports.length) return false;
        // Each portal that is missing counts as a problem.
        let missing = 0;
        for (const { servicePort, portals } of host.wanted.values()) {
          const had = new Set(host.plan.redirects(servicePort).map((lead) => lead.portal));
          missing += portals.filter((one) => !had.has(one)).length;
        }
        const counts = problems.filter(({ portal }) => portal !== undefined);
        if (missing !== counts.reduce((sum, { count = 1 }) => sum + count, 0)) return false;
      }
      return true;
    }),
  );
  t.end();
});

t.test('no port is lost', (t) => {
  holds(
    t,
    fc.property(steps, (all) => {
      const host = new Host();
      for (const { set, remove } of all) host.sync(set, remove);
      host.sync([], [...host.wanted.keys()]);
      const free = new Set<number | undefined>();
      for (let n = RANGE.first; n <= RANGE.last; n += 1) free.add(host.allocator.allocate());
      return free.size === 8 && !free.has(undefined);
    }),
  );
  t.end();
});

t.test('a released proxy port is not reused in the same plan', (t) => {
  for (const random of [0, 0.4, 0.99]) {
    const allocator = new PortAllocator({ first: 50_000, last: 50_002 }, () => random);
    const plan = new RedirectPlan({ allocator, bindAddresses: { 4: '0.0.0.0', 6: '::' } });
    const both = ['clusterIP 10.0.0.1:80', 'clusterIP fd00::1:80'].map((text) => portal(text));
    const wants = (servicePort: string, portals: ServicePortPortals['portals']) => {
      return { servicePort, portals, splitTraffic: false };
    };
    const before = plan.plan([wants('d/a', both)], []).listen.get('d/a') ?? [];
    const after = plan.plan(
      [wants('d/a', both.slice(0, 1)), wants('d/b', [portal('clusterIP 10.0.0.2:80')])],
      [],
    );
    const [fresh] = after.listen.get('d/b') ?? [];
    // Until the plan is carried out, rules redirect the previous clients there.
    t.notOk(before.some(({ port }) => port === fresh?.port));
    t.equal(after.problems.length, 0);
  }
  t.end();
});
