import assert from 'node:assert/strict';
import * as fc from 'fast-check';
import t from 'tap';
import { EndpointInfo } from '../../src/api/generated/globalv1/api.ts';
import type { Endpoint } from '../../src/api/generated/localv1/api.ts';
import type { ViewNode } from '../../src/store/selection.ts';
import { service } from '../support/messages.ts';
import { localEndpoints } from '../support/node-view.ts';
import { holds } from '../support/property.ts';

const zone = fc.constantFrom('z1', 'z2', 'z3');

const info = fc
  .record({
    podName: fc.constantFrom('', 'p0', 'p1', 'p2'),
    v4: fc.uniqueArray(fc.integer({ min: 1, max: 9 }), { maxLength: 2 }),
    v6: fc.uniqueArray(fc.integer({ min: 1, max: 9 }), { maxLength: 2 }),
    port: fc.option(fc.integer({ min: 1, max: 3 }), { nil: undefined }),
    ready: fc.option(fc.boolean(), { nil: undefined }),
    node: fc.constantFrom('', 'n1', 'n2'),
    hints: fc.option(fc.uniqueArray(zone), { nil: undefined }),
  })
  .map(({ podName, v4, v6, port, ready, node, hints }) =>
    EndpointInfo.fromPartial({
      podName,
      endpoint: {
        ips: { v4: v4.map((n) => `10.0.0.${n}`), v6: v6.map((n) => `fd00::${n}`) },
        portOverrides: port === undefined ? [] : [{ name: 'http', port }],
      },
      ...(ready === undefined ? {} : { conditions: { ready } }),
      ...(node === '' ? {} : { topology: { node } }),
      ...(hints === undefined ? {} : { hints: { zones: hints } }),
    }),
  );

const infos = fc.array(info, { maxLength: 8 });
const node: fc.Arbitrary<ViewNode> = fc.record({
  name: fc.constantFrom('', 'n1', 'n3'),
  zone: fc.constantFrom('', 'z1', 'z2'),
});
const policies = fc.record({
  internalTrafficToLocal: fc.boolean(),
  externalTrafficToLocal: fc.boolean(),
});

/** `address:port` of everything that a list of endpoints has. */
function addresses(endpoints: Iterable<Endpoint>): string[] {
  const all = [...endpoints].flatMap(({ ips, portOverrides }) =>
    [...(ips?.v4 ?? []), ...(ips?.v6 ?? [])].map((ip) => `${ip} ${portOverrides[0]?.port ?? ''}`),
  );
  return [...new Set(all)].sort();
}

t.test(
  'with the usual policies a service with a ready endpoint never ends up without',
  async (t) => {
    holds(
      t,
      fc.property(infos, node, (infos, node) => {
        const found = localEndpoints(service('demo/web'), infos, node);
        const ready = infos.filter(({ conditions }) => conditions?.ready ?? true);
        return found.size > 0 === ready.length > 0;
      }),
    );
  },
);

t.test('without hints nobody loses or gains an address, however pods are merged', async (t) => {
  holds(
    t,
    fc.property(infos, node, (infos, node) => {
      const plain = infos.map((info) => ({ ...info, hints: undefined }));
      const ready = plain.filter(({ conditions }) => conditions?.ready ?? true);
      const expected = ready.flatMap(({ endpoint }) => (endpoint === undefined ? [] : [endpoint]));
      const found = localEndpoints(service('demo/web'), plain, node);
      // An address without a port of its own may get that of another slice of the same pod.
      const without = (texts: string[]): string[] =>
        [...new Set(texts.map((text) => text.split(' ')[0] ?? ''))].sort();
      assert.deepEqual(without(addresses(found.values())), without(addresses(expected)));
    }),
  );
});

t.test('a Local policy only ever uses local endpoints, and all that are ready', async (t) => {
  holds(
    t,
    fc.property(infos, node, policies, (infos, node, policies) => {
      const found = [...localEndpoints(service('demo/web', policies), infos, node).values()];
      const localReady = infos.some(
        ({ conditions, topology }) =>
          (conditions?.ready ?? true) && node.name !== '' && topology?.node === node.name,
      );
      for (const [policy, scope] of [
        ['internalTrafficToLocal', 'internal'],
        ['externalTrafficToLocal', 'external'],
      ] as const) {
        if (!policies[policy]) continue;
        const used = found.filter(({ scopes }) => scopes?.[scope] === true);
        if (used.some(({ local }) => !local)) return false;
        if (used.length > 0 !== localReady) return false;
      }
      return true;
    }),
  );
});

t.test('keys are in order and every endpoint is usable for something', async (t) => {
  holds(
    t,
    fc.property(infos, node, policies, (infos, node, policies) => {
      const found = localEndpoints(service('demo/web', policies), infos, node);
      const pods = [...found.keys()].filter((name) => !name.startsWith('hash'));
      return (
        pods.join() === [...pods].sort().join() &&
        [...found.values()].every(({ scopes }) => scopes?.internal || scopes?.external)
      );
    }),
  );
});
