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

function entryOf(given: Shape): ServiceEntry {
  const { slot, address } = given;
  const endpoints = given.endpoints.map((n) => {
    const scopes = { internal: true, external: given.external };
    return [`pod-${n}`, endpoint(`10.1.${slot}.${n}`, { scopes })] as const;
  });
  const portText = (text: string, index: number): string => {
    const [name = '', protocol = '', number = '', target = ''] = text.split(' ');
    const main = `${name} ${protocol} ${Number(number) + slot * 100} ${target}`;
    return index < given.nodePort ? `${main}@${30_000 + slot * 10 + index}` : main;
  };
  return entry(
    `d/s${slot}`,
    {
      type: given.type,
      ips: { clusterIPs: { v4: [`127.2.${slot}.${address}`], v6: address === 2 ? ['::1'] : [] } },
      ports: ports(...given.ports.map((text, index) => portText(text, index))),
      sessionAffinity:
        given.timeoutSeconds === 0
          ? undefined
          : { $case: 'clientIP', value: { timeoutSeconds: given.timeoutSeconds } },
    },
    Object.fromEntries(endpoints),
  );
}

/** Puts one change set into a rig. What fails is due with the next one. */
async function change(rig: Rig, { shapes, failAfter, broken }: ChangeSet): Promise<void> {
  const { portal } = rig;
  const working = { plan: portal.plan.bind(portal), commit: portal.commit.bind(portal) };
  const changed = new Set<string>();
  for (const each of shapes) {
    const made = entryOf(each);
    if (each.gone) rig.view.remove(made.key);
    else rig.view.set(made);
    changed.add(made.key);
  }
  rig.engine.failAfter = failAfter;
  if (broken !== undefined) {
    portal[broken] = () => {
      throw new Error('broken');
    };
  }
  try {
    await rig.proxier.sync({ view: rig.view, changed });
  } catch (error) {
    if (failAfter === undefined && broken === undefined) throw error;
  }
  rig.engine.failAfter = undefined;
  Object.assign(portal, working);
}

/** What is wrong, as texts. */
function messages(rig: Rig): Set<string> {
  return new Set(rig.proxier.snapshot().problems.map(({ message }) => message));
}

const changeSet = fc.record({
  shapes: fc.array(shape, { maxLength: 4 }),
  failAfter: fc.option(fc.nat(3), { nil: undefined, freq: 4 }),
  broken: fc.option(fc.constantFrom('plan', 'commit'), { nil: undefined, freq: 4 }),
});
type ChangeSet = typeof changeSet extends fc.Arbitrary<infer T> ? T : never;

const changeSets = fc.array(changeSet, { minLength: 1, maxLength: 8 });

function newRig(): Rig {
  return new Rig(new AddressPortal({ interfaces: () => [] }));
}

t.test('whatever came before and whatever failed, the last view decides', async (t) => {
  const property = fc.asyncProperty(changeSets, async (sets) => {
    const [rig, fresh] = [newRig(), newRig()];
    try {
      for (const each of sets) await change(rig, each);
      await rig.again();
      await fresh.set(...rig.view.entries());
      return (
        isDeepStrictEqual(rig.engine.state(), fresh.engine.state()) &&
        isDeepStrictEqual(messages(rig), messages(fresh))
      );
    } finally {
      await Promise.all([rig.close(), fresh.close()]);
    }
  });
  await holdsAsync(t, property);
});
