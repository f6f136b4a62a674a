import assert from 'node:assert/strict';
import * as fc from 'fast-check';
import t from 'tap';
import { EndpointInfo } from '../../src/api/generated/globalv1/api.ts';
import type { Endpoint } from '../../src/api/generated/localv1/api.ts';
import { loadHasher } from '../../src/api/hash.ts';
import type { Policies, ViewNode } from '../../src/store/selection.ts';
import { NO_VIEW, ServiceViews, type View } from '../../src/store/service-views.ts';
import { StoredEndpoint } from '../../src/store/stored.ts';
import { changedKeys, diffViews } from '../../src/store/local-deltas.ts';
import { service } from '../support/messages.ts';
import { localEndpoints } from '../support/node-view.ts';
import { holds } from '../support/property.ts';

const hasher = await loadHasher();

const names = fc.uniqueArray(fc.constantFrom('n1', 'n2', 'n3'));
const zones = fc.uniqueArray(fc.constantFrom('z1', 'z2'));

const info: fc.Arbitrary<Raw> = fc.record({
  podName: fc.constantFrom('', 'p0', 'p1', 'p2'),
  ip: fc.integer({ min: 1, max: 4 }),
  v6: fc.boolean(),
  port: fc.integer({ min: 1, max: 2 }),
  node: fc.constantFrom('', 'n1', 'n2', 'n3'),
  state: fc.constantFrom('ready', 'ready', 'draining', 'off', 'absent'),
  zones: fc.option(zones, { nil: undefined }),
  nodes: fc.option(names, { nil: undefined }),
});

function message({ podName, ip, v6, port, node, state, zones, nodes }: Raw): EndpointInfo {
  const draining = state === 'draining';
  return EndpointInfo.fromPartial({
    namespace: 'demo',
    serviceName: 'web',
    podName,
    endpoint: {
      ips: v6 ? { v6: [`fd00::${ip}`] } : { v4: [`10.0.0.${ip}`] },
      portOverrides: [{ name: 'http', port }],
    },
    ...(state === 'absent'
      ? {}
      : { conditions: { ready: state === 'ready', serving: draining, terminating: draining } }),
    ...(node === '' ? {} : { topology: { node } }),
    ...(zones === undefined && nodes === undefined
      ? {}
      : { hints: { zones: zones ?? [], nodes: nodes ?? [] } }),
  });
}

interface Raw {
  readonly podName: string;
  readonly ip: number;
  readonly v6: boolean;
  readonly port: number;
  readonly node: string;
  readonly state: string;
  readonly zones?: string[] | undefined;
  readonly nodes?: string[] | undefined;
}

const node: fc.Arbitrary<ViewNode> = fc.record({
  name: fc.constantFrom('', 'n1', 'n2', 'n9'),
  zone: fc.constantFrom('', 'z1', 'z2', 'z9'),
});
const policies: fc.Arbitrary<Policies> = fc.record({
  internalTrafficToLocal: fc.boolean(),
  externalTrafficToLocal: fc.boolean(),
});

/** What docs/reference/state-file.md says, word by word. */
function model(
  { internalTrafficToLocal, externalTrafficToLocal }: Policies,
  infos: readonly EndpointInfo[],
  { name, zone }: ViewNode,
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
    if (!internal && !external) return [];
    return [text(each.endpoint?.ips, local.includes(each), { internal, external })];
  });
}

function text(ips: unknown, local: boolean, scopes: unknown): string {
  return JSON.stringify([ips, local, scopes]);
}

t.test('each node sees what the rules say', async (t) => {
  holds(
    t,
    fc.property(fc.array(info, { maxLength: 8 }), node, policies, (raw, node, policies) => {
      // Each with an address and a name of its own, so that nothing is merged.
      const infos = raw.map((each, index) =>
        message({ ...each, ip: index + 1, podName: each.podName === '' ? '' : `p${index}` }),
      );
      const found = [...localEndpoints(policies, infos, node).values()].map(
        ({ ips, local, scopes }) => text(ips, local, scopes),
      );
      assert.deepEqual(found.sort(), model(policies, infos, node).sort());
    }),
  );
});

t.test('large services have the same rules', async (t) => {
  const infos = Array.from({ length: 60 }, (_, index) =>
    message({
      podName: `p${index}`,
      ip: index,
      v6: false,
      port: 1,
      node: `n${index % 7}`,
      state: index % 5 === 0 ? 'off' : 'ready',
    }),
  );
  const local = { internalTrafficToLocal: true, externalTrafficToLocal: false };
  for (const name of ['n1', 'n6', 'n9', '']) {
    const found = [...localEndpoints(local, infos, { name, zone: '' }).values()].map(
      ({ ips, local, scopes }) => text(ips, local, scopes),
    );
    t.strictSame(found.sort(), model(local, infos, { name, zone: '' }).sort(), name);
  }
});

t.test('the order in which endpoints are reported does not matter', async (t) => {
  holds(
    t,
    fc.property(
      fc.array(info, { maxLength: 6 }),
      node,
      policies,
      fc.nat(),
      (raw, node, policies, by) => {
        const infos = raw.map(message);
        const turned = infos.map((_, index) => infos[(index + by) % infos.length]);
        const other = turned.filter((each) => each !== undefined).reverse();
        assert.deepEqual(
          [...localEndpoints(policies, infos, node)],
          [...localEndpoints(policies, other, node)],
        );
      },
    ),
  );
});

t.test(
  'nodes that run none of the endpoints share one view, and all of them its endpoints',
  async (t) => {
    const infos = ['n1', 'n2', 'n3'].map((node, index) =>
      message({
        podName: `p${index}`,
        ip: index,
        v6: false,
        port: 1,
        node,
        state: 'ready',
        zones: undefined,
      }),
    );
    const stored = infos.map((each) => new StoredEndpoint(each));
    const none = { internalTrafficToLocal: false, externalTrafficToLocal: false };
    const views = new ServiceViews(none, stored, hasher);
    const far = views.of({ name: 'x', zone: 'z1' });
    t.equal(views.of({ name: 'y', zone: 'z2' }), far);
    const own = views.of({ name: 'n2', zone: 'z1' });
    t.equal(own.shared, far.shared);
    t.strictSame([...(own.own?.keys() ?? [])], ['p1']);
    // The next state of the service has the same endpoints, but for one.
    const next = new ServiceViews(none, stored.slice(1), hasher).of({ name: 'x', zone: '' });
    t.equal(next.shared.byKey.get('p2'), far.shared.byKey.get('p2'), 'its encoding is made once');
  },
);

t.test('hints of zones make a view for each zone that they name', async (t) => {
  const infos = ['z1', 'z2'].map((zone, index) =>
    message({
      podName: `p${index}`,
      ip: index,
      v6: false,
      port: 1,
      node: '',
      state: 'ready',
      zones: [zone],
    }),
  );
  const stored = infos.map((each) => new StoredEndpoint(each));
  const none = { internalTrafficToLocal: false, externalTrafficToLocal: false };
  const views = new ServiceViews(none, stored, hasher);
  t.equal(views.of({ name: 'x', zone: 'z1' }), views.of({ name: 'y', zone: 'z1' }));
  t.not(views.of({ name: 'x', zone: 'z1' }), views.of({ name: 'y', zone: 'z2' }));
  t.equal(views.of({ name: 'x', zone: 'z8' }), views.of({ name: 'y', zone: 'z9' }), 'in no zone');
});

/** All addresses of endpoints. */
function addresses(endpoints: Iterable<Endpoint | undefined>): string[] {
  const all = [...endpoints].flatMap((each) => (each?.ips?.v4 ?? []).concat(each?.ips?.v6 ?? []));
  return [...new Set(all)].sort();
}

t.test(
  'without hints no endpoint loses or gains an address, however pods are merged',
  async (t) => {
    holds(
      t,
      fc.property(fc.array(info, { maxLength: 8 }), node, (raw, node) => {
        const infos = raw.map((each) => Object.assign(message(each), { hints: undefined }));
        const ready = infos.filter(({ conditions }) => conditions?.ready ?? true);
        const found = localEndpoints(service('demo/web'), infos, node);
        const usable = ready.length > 0 ? ready : infos.filter((each) => each.conditions?.serving);
        assert.deepEqual(addresses(found.values()), addresses(usable.map((each) => each.endpoint)));
      }),
    );
  },
);

/** What differs between two views, with everything in it. */
function difference(older: View, newer: View): unknown {
  const { sets, deletes } = diffViews(older, newer, changedKeys);
  return [sets.map(({ key, endpoint }) => [key, endpoint]), deletes.map(({ key }) => key)];
}

t.test('incremental views equal views built from scratch', async (t) => {
  const list = fc.array(info, { maxLength: 8 });
  const change = fc.tuple(fc.nat(), fc.nat(2), fc.array(info, { maxLength: 2 }));
  const steps = fc.array(change, { maxLength: 4 });
  // Without hints and of one pod each, as most are; in large services, too.
  const kind = fc.constantFrom('any', 'plain', 'one', 'many');
  const ofNode = (i: number): Raw => {
    return { podName: '', ip: i, v6: false, port: 1, node: `n${(i % 3) + 1}`, state: 'ready' };
  };
  holds(
    t,
    fc.property(list, steps, node, policies, kind, (raw, steps, node, policies, kind) => {
      let pods = 0;
      const storedOf = (each: Raw): StoredEndpoint => {
        const plain = { ...each, zones: undefined, nodes: undefined };
        const one = { ...plain, podName: `q${(pods += 1)}` };
        return new StoredEndpoint(message({ any: each, plain, one, many: one }[kind]));
      };
      let stored = raw.map(storedOf);
      // So many that those of each node are in a list.
      const more = kind === 'many' ? 40 : 0;
      for (let i = 0; i < more; i += 1) stored.push(storedOf(ofNode(i)));
      let views = new ServiceViews(policies, stored, hasher);
      for (const [at, count, infos] of steps) {
        const before = views.of(node);
        const start = at % (stored.length + 1);
        const removed = stored.slice(start, start + count);
        const added = infos.map(storedOf);
        stored = stored.toSpliced(start, count, ...added);
        views = new ServiceViews(policies, stored, hasher, { views, removed, added });
        const fresh = new ServiceViews(policies, stored, hasher);
        const scratch = fresh.of(node);
        assert.deepEqual(difference(NO_VIEW, views.of(node)), difference(NO_VIEW, scratch));
        assert.deepEqual(difference(before, views.of(node)), difference(before, scratch));
        const other = { name: 'n2', zone: '' };
        assert.deepEqual(
          difference(NO_VIEW, views.of(other)),
          difference(NO_VIEW, fresh.of(other)),
        );
      }
    }),
  );
});

t.test('an endpoint of a pod that has one already is merged with it', async (t) => {
  const of = (podName: string, ip: number, v6: boolean): StoredEndpoint =>
    new StoredEndpoint(message({ podName, ip, v6, port: 1, node: '', state: 'ready' }));
  const none = { internalTrafficToLocal: false, externalTrafficToLocal: false };
  let stored = [of('p0', 1, false)];
  let views = new ServiceViews(none, stored, hasher);
  for (const added of [of('p1', 2, false), of('p1', 2, true)]) {
    stored = stored.concat(added);
    views = new ServiceViews(none, stored, hasher, { views, removed: [], added: [added] });
  }
  const scratch = new ServiceViews(none, stored, hasher).of({ name: '', zone: '' });
  const found = difference(NO_VIEW, views.of({ name: '', zone: '' }));
  t.strictSame(found, difference(NO_VIEW, scratch));
});
