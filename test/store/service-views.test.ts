import assert from 'node:assert/strict';
import { isDeepStrictEqual } from 'node:util';
import * as fc from 'fast-check';
import t from 'tap';
import { EndpointInfo } from '../../src/api/generated/globalv1/api.ts';
import type { Endpoint } from '../../src/api/generated/localv1/api.ts';
import { loadHasher } from '../../src/api/hash.ts';
import type { Policies, ViewNode } from '../../src/store/selection.ts';
import { NodeEntry } from '../../src/store/node-view.ts';
import { ServiceRecord } from '../../src/store/service-views.ts';
import { service } from '../support/messages.ts';
import { anyInfo, type Info, localEndpoints } from '../support/cluster.ts';
import { holds } from '../support/property.ts';

const hasher = await loadHasher();

const info = anyInfo.map(message);

function message(given: Info): EndpointInfo {
  return EndpointInfo.fromPartial({ ...given, namespace: 'demo', serviceName: 'web' });
}

const node: fc.Arbitrary<ViewNode> = fc.record({
  name: fc.constantFrom('', 'n1', 'n2', 'n9'),
  zone: fc.constantFrom('', 'z1', 'z2', 'z9'),
  clusterScope: fc.boolean(),
});
const policies: fc.Arbitrary<Policies> = fc.record({
  internalTrafficToLocal: fc.boolean(),
  externalTrafficToLocal: fc.boolean(),
});

const LOCAL: Policies = { internalTrafficToLocal: true, externalTrafficToLocal: false };

/** What docs/reference/state-file.md says, word by word. */
function model(
  { internalTrafficToLocal, externalTrafficToLocal }: Policies,
  infos: readonly EndpointInfo[],
  { name, zone, clusterScope = false }: ViewNode,
): string[] {
  const ready = (each: EndpointInfo): boolean => each.conditions?.ready !== false;
  const draining = (each: EndpointInfo): boolean =>
    each.conditions?.serving === true && each.conditions.terminating;
  const orDraining = (list: readonly EndpointInfo[]): readonly EndpointInfo[] => {
    const good = list.filter(ready);
    return good.length > 0 ? good : list.filter(draining);
  };
  const local = infos.filter((each) => name !== '' && each.topology?.node === name);
  const nearby = new Set(orDraining(local));
  let anywhere = orDraining(infos);
  if (anywhere.some(ready)) {
    const forNode = anywhere.filter((each) => each.hints?.nodes.includes(name));
    const forZone = anywhere.filter((each) => zone !== '' && each.hints?.zones.includes(zone));
    const all = (hint: 'nodes' | 'zones'): boolean =>
      anywhere.every((each) => (each.hints?.[hint].length ?? 0) > 0);
    if (all('nodes') && forNode.length > 0) anywhere = forNode;
    else if (all('zones') && forZone.length > 0) anywhere = forZone;
  }
  return infos.flatMap((each) => {
    const inside = (toLocal: boolean): boolean =>
      toLocal ? nearby.has(each) : anywhere.includes(each);
    const [internal, external] = [inside(internalTrafficToLocal), inside(externalTrafficToLocal)];
    const hasCluster = clusterScope && internalTrafficToLocal && externalTrafficToLocal;
    const cluster = hasCluster ? anywhere.includes(each) : undefined;
    if (!internal && !external && cluster !== true) return [];
    return [text(each.endpoint?.ips, local.includes(each), { internal, external, cluster })];
  });
}

function text(ips: unknown, local: boolean, scopes: unknown): string {
  return JSON.stringify([ips, local, scopes]);
}

const few = fc.array(info, { maxLength: 8 });
/** From 32 on there is an index. */
const many = fc.array(info, { minLength: 33, maxLength: 40 });

t.test('each node sees what the rules say', async (t) => {
  holds(
    t,
    fc.property(fc.oneof(few, many), node, policies, (given, node, policies) => {
      // Each with an address and a name of its own, so that nothing is merged.
      const infos = given.map((each, index) => {
        const ips = { v4: [`10.0.0.${index}`] };
        const podName = each.podName === '' ? '' : `p${index}`;
        return message({ ...each, podName, endpoint: { ...each.endpoint, ips } });
      });
      const found = [...localEndpoints(policies, infos, node).values()].map(
        ({ ips, local, scopes }) => text(ips, local, scopes),
      );
      assert.deepEqual(found.sort(), model(policies, infos, node).sort());
    }),
  );
});

/** The endpoint of one pod on the node n1, with the hint of a node. */
function hinted(hint: string): EndpointInfo {
  const [endpoint, topology] = [{ ips: { v4: ['10.0.0.1'] } }, { node: 'n1' }];
  return message({ podName: 'p1', endpoint, topology, hints: { nodes: [hint] } });
}

t.test('the order in which endpoints are reported does not matter', async (t) => {
  const infos = fc.array(info, { maxLength: 6 });
  holds(
    t,
    fc.property(infos, node, policies, fc.nat(), (infos, node, policies, by) => {
      const turned = infos.map((_, index) => infos[(index + by) % infos.length]);
      const other = turned.filter((each) => each !== undefined).reverse();
      assert.deepEqual(
        [...localEndpoints(policies, infos, node)],
        [...localEndpoints(policies, other, node)],
      );
    }),
    [[[hinted('n1'), hinted('n2')], { name: 'n1', zone: '' }, LOCAL, 0]],
  );
});

/** All addresses of endpoints. */
function addresses(endpoints: Iterable<Endpoint | undefined>): string[] {
  const all = [...endpoints].flatMap((each) => (each?.ips?.v4 ?? []).concat(each?.ips?.v6 ?? []));
  return [...new Set(all)].sort();
}

t.test('without hints, merged pods lose and gain no address', async (t) => {
  holds(
    t,
    fc.property(fc.array(info, { maxLength: 8 }), node, (given, node) => {
      const infos = given.map((each) => message({ ...each, hints: undefined }));
      const ready = infos.filter(({ conditions }) => conditions?.ready ?? true);
      const found = localEndpoints(service('demo/web'), infos, node);
      const draining = infos.filter(
        ({ conditions }) => conditions?.serving === true && conditions.terminating,
      );
      const usable = ready.length > 0 ? ready : draining;
      assert.deepEqual(addresses(found.values()), addresses(usable.map((each) => each.endpoint)));
    }),
  );
});

t.test('an entry that is made from the previous one is what a new one would be', async (t) => {
  // Some of the previous endpoints by their index, and new ones.
  const edits = fc.array(fc.oneof(fc.nat(9), info), { maxLength: 8 });
  const flags = { isOther: fc.boolean(), isDistinct: fc.boolean() };
  const change = fc.record({ edits, node, policies, ...flags });
  const changes = fc.array(change, { minLength: 2, maxLength: 5 });
  holds(
    t,
    fc.property(changes, (changes) => {
      let kept: { readonly entry: NodeEntry; readonly node: ViewNode } | undefined;
      for (const { edits, node, policies, isOther, isDistinct } of changes) {
        const old = kept?.entry.record.endpoints ?? [];
        let infos = edits.flatMap((each) => {
          return typeof each === 'number' ? (old[each] ?? []) : each;
        });
        if (isDistinct) {
          const byPod = new Map(infos.map((each) => [each.podName, each]));
          byPod.delete('');
          infos = [...byPod.values()];
        }
        const asBefore = isOther ? undefined : kept;
        const to = asBefore?.entry.service ?? { ...service('demo/web'), ...policies };
        const viewer = asBefore?.node ?? node;
        const record = new ServiceRecord(to, infos);
        const entry = new NodeEntry('demo/web', record, viewer, hasher);
        const made = new NodeEntry('demo/web', record, viewer, hasher);
        const differences = kept && made.follow(kept.entry, true);
        assert.deepEqual([...made.endpoints], [...entry.endpoints]);
        const known = localEndpoints(to, infos, viewer);
        assert.deepEqual(new Map(made.endpoints), new Map(known));
        const before = kept?.entry.endpoints ?? new Map<string, Endpoint>();
        const differ = [...new Set([...before.keys(), ...known.keys()])].filter((key) => {
          const same = isDeepStrictEqual(before.get(key), known.get(key));
          assert.ok(!same || before.get(key) === made.endpoints.get(key));
          return !same;
        });
        const isSame = isDeepStrictEqual(kept?.entry.service, to);
        if (kept) assert.equal(differences, differ.length + (isSame ? 0 : 1));
        kept = { entry: made, node: viewer };
      }
    }),
  );
});
