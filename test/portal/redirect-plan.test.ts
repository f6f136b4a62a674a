import t from 'tap';
import * as fc from 'fast-check';
import { PortAllocator } from '../../src/portal/proxy-ports.ts';
import { RedirectPlan } from '../../src/portal/redirect-plan.ts';
import type { PortalPlan, ServicePortPortals } from '../../src/portal/portal.ts';
import type { ListenSpec } from '../../src/proxysocket/spec.ts';
import { holds } from '../support/property.ts';
import { portal } from '../support/portals.ts';

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

  /** Where every portal leads: `family place -> service port traffic`, or `nowhere`. */
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

t.test('whatever came before, each portal has one holder, and leads to a listener of it', (t) => {
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

t.test('a listener stays as long as it is needed', (t) => {
  const host = new Host();
  const web = (...portals: string[]): ServicePortPortals => ({
    servicePort: 'd/web',
    portals: portals.map((text) => portal(text)),
  });
  host.sync([web('clusterIP 10.0.0.1:80')], []);
  const [first] = host.listen.get('d/web') ?? [];
  host.sync([web('clusterIP 10.0.0.1:80', 'nodePort 30000')], []);
  t.equal(host.listen.get('d/web')?.length, 3);
  t.ok(host.listen.get('d/web')?.some(({ port }) => port === first?.port));
  const again = host.sync([web('clusterIP 10.0.0.9:80', 'nodePort 30000')], []);
  t.equal(again.listen.size, 0, 'another address needs no other listener');
  host.sync([web('clusterIP 10.0.0.9:80')], []);
  t.strictSame(host.listen.get('d/web'), [first]);
  t.end();
});

t.test('a proxy port that is given up is not another one’s in the same plan', (t) => {
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
    // Until the plan is carried out, rules lead the former clients there.
    t.notOk(before.some(({ port }) => port === fresh?.port));
    t.equal(after.problems.length, 0);
  }
  t.end();
});

t.test('more conflicts than a call has room for arguments', (t) => {
  const plan = new RedirectPlan({
    allocator: new PortAllocator(undefined, Math.random),
    bindAddresses: { 4: '0.0.0.0', 6: '::' },
  });
  const portals = Array.from({ length: 10_000 }, (_, n) =>
    portal(`externalIP 10.0.${n >> 8}.${n & 255}:80`),
  );
  const greedy = Array.from({ length: 15 }, (_, n) => ({ servicePort: `d/s${n}`, portals }));
  const good = { servicePort: 'd/good', portals: [portal('clusterIP 10.9.0.1:80')] };
  const { problems, listen } = plan.plan([...greedy, good], []);
  t.match(problems, [{ code: 'KPNG_PORTAL_CONFLICT', count: 140_000 }]);
  t.ok(listen.has('d/good'));
  t.end();
});
