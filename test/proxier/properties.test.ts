import { isDeepStrictEqual } from 'node:util';
import t from 'tap';
import * as fc from 'fast-check';
import type { ServiceEntry } from '../../src/store/local-view.ts';
import { AddressPortal } from '../../src/portal/address.ts';
import { endpoint, entry, ports } from '../support/messages.ts';
import { holdsAsync } from '../support/property.ts';
import { Rig } from '../support/proxier-rig.ts';

/** What a service looks like; `slot` distinguishes services. */
const shape = fc.record({
  slot: fc.nat(4),
  gone: fc.boolean(),
  type: fc.constantFrom('ClusterIP', 'ClusterIP', 'ExternalName'),
  address: fc.nat(2),
  ports: fc.uniqueArray(
    fc.constantFrom(
      'a TCP 80 8080',
      'a UDP 80 8080',
      'b TCP 81 8081',
      'b SCTP 81 8081',
      'c TCP 70000 1',
      '- TCP 82 8080',
    ),
    { maxLength: 3 },
  ),
  nodePort: fc.nat(2),
  timeoutSeconds: fc.nat(2),
  endpoints: fc.uniqueArray(fc.nat(4), { maxLength: 3 }),
  external: fc.boolean(),
});
type Shape = typeof shape extends fc.Arbitrary<infer T> ? T : never;

/** With `shared`, services use the same addresses and node ports, so that they are in each other's way. */
function entryOf(given: Shape, shared: boolean): ServiceEntry {
  const { slot, address } = given;
  const own = shared ? 0 : slot;
  const endpoints = given.endpoints.map((n) => {
    const scopes = { internal: true, external: given.external };
    return [`pod-${n}`, endpoint(`10.1.${slot}.${n}`, { scopes })] as const;
  });
  const portText = (text: string, index: number): string => {
    const [name = '', protocol = '', number = '', target = ''] = text.split(' ');
    const main = `${name} ${protocol} ${Number(number) + own * 100} ${target}`;
    return index < given.nodePort ? `${main}@${nodePortOf(index)}` : main;
  };
  // Shared, node ports also meet the ports of single addresses: 30080 of one, 80 of the other.
  const nodePortOf = (index: number): number =>
    shared && index === 1 ? 80 : 30_000 + own * 10 + index;
  return entry(
    `d/s${slot}`,
    {
      type: given.type,
      ips: { clusterIPs: { v4: [`127.2.${own}.${address}`], v6: address === 2 ? ['::1'] : [] } },
      ports: ports(...given.ports.map((text, index) => portText(text, index))),
      sessionAffinity:
        given.timeoutSeconds === 0
          ? undefined
          : { $case: 'clientIP', value: { timeoutSeconds: given.timeoutSeconds } },
    },
    Object.fromEntries(endpoints),
  );
}

/** Puts one change set into a rig; returns the keys that have to be given again. */
async function change(
  rig: Rig,
  shapes: readonly Shape[],
  options: { shared: boolean; again?: ReadonlySet<string>; failAfter?: number | undefined },
): Promise<ReadonlySet<string>> {
  const changed = new Set(options.again);
  for (const each of shapes) {
    const made = entryOf(each, options.shared);
    if (each.gone) rig.view.remove(made.key);
    else rig.view.set(made);
    changed.add(made.key);
  }
  rig.engine.failAfter = options.failAfter;
  try {
    await rig.proxier.sync({ view: rig.view, changed });
    rig.engine.failAfter = undefined;
    return new Set();
  } catch (error) {
    if (options.failAfter === undefined) throw error;
    return changed;
  }
}

/** What is wrong, as texts. */
function messages(rig: Rig): Set<string> {
  return new Set(rig.proxier.snapshot().problems.map(({ message }) => message));
}

const changeSets = fc.array(
  fc.record({
    shapes: fc.array(shape, { maxLength: 4 }),
    failAfter: fc.option(fc.nat(3), { nil: undefined, freq: 4 }),
  }),
  { minLength: 1, maxLength: 8 },
);

function newRig(): Rig {
  return new Rig(new AddressPortal({ interfaces: () => [] }));
}

t.test('whatever came before and whatever failed, the last view decides', async (t) => {
  await holdsAsync(
    t,
    fc.asyncProperty(changeSets, async (sets) => {
      const [rig, fresh] = [newRig(), newRig()];
      try {
        let again: ReadonlySet<string> = new Set();
        for (const { shapes, failAfter } of sets) {
          again = await change(rig, shapes, { shared: false, again, failAfter });
        }
        await change(rig, [], { shared: false, again });
        await fresh.proxier.sync(fresh.view.set(...rig.view.entries()));
        return (
          isDeepStrictEqual(rig.engine.state(), fresh.engine.state()) &&
          isDeepStrictEqual(messages(rig), messages(fresh))
        );
      } finally {
        await Promise.all([rig.close(), fresh.close()]);
      }
    }),
  );
});

t.test('no two service ports share an address, and no needed address stays free', async (t) => {
  await holdsAsync(
    t,
    fc.asyncProperty(changeSets, async (sets) => {
      const rig = newRig();
      try {
        for (const { shapes } of sets) {
          // The engine throws when two service ports want one place.
          await change(rig, shapes, { shared: true });
          const listeners = rig.engine.snapshot().flatMap((each) => each.listeners);
          if (listeners.some(({ state }) => state === 'failed')) return false;
          const { servicePorts, problems } = rig.proxier.snapshot();
          const isFree = servicePorts.some(({ spec, portals }) =>
            portals.some(({ address = '127.9.9.9', port }) => {
              return rig.engine.lands(address, port, spec.protocol) === undefined;
            }),
          );
          if (isFree && !problems.some(({ code }) => code === 'KPNG_PORTAL_CONFLICT')) return false;
        }
        return true;
      } finally {
        await rig.close();
      }
    }),
  );
});
