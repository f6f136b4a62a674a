import assert from 'node:assert/strict';
import * as fc from 'fast-check';
import t from 'tap';
import { EndpointInfo, Node } from '../../src/api/generated/globalv1/api.ts';
import { Service } from '../../src/api/generated/localv1/api.ts';
import { StateBuilder, stateChanges } from '../../src/file/state-changes.ts';
import type { GlobalService, GlobalState } from '../../src/store/global-state.ts';
import { holds } from '../support/property.ts';

function globalService(
  name: string,
  type: string,
  endpoints: readonly EndpointInfo[],
): GlobalService {
  return {
    key: `d/${name}`,
    service: Service.fromPartial({ namespace: 'd', name, type }),
    endpoints,
  };
}

function pod(n: number): EndpointInfo {
  return EndpointInfo.fromPartial({
    podName: `pod-${n}`,
    endpoint: { ips: { v4: [`10.0.0.${n}`] } },
  });
}

function stateWith(services: readonly GlobalService[], nodes: readonly Node[] = []): GlobalState {
  return {
    services: new Map(services.map((each) => [each.key, each])),
    nodes: new Map(nodes.map((each) => [each.name, each])),
  };
}

const someState: fc.Arbitrary<GlobalState> = fc
  .record({
    services: fc.uniqueArray(
      fc.record({
        name: fc.constantFrom('a', 'b', 'c', 'd'),
        type: fc.constantFrom('', 'ClusterIP'),
        pods: fc.array(fc.nat(6), { maxLength: 8 }),
      }),
      { selector: ({ name }) => name },
    ),
    nodes: fc.uniqueArray(
      fc.record({ name: fc.constantFrom('n1', 'n2'), zone: fc.constantFrom('x', 'y') }),
      { selector: ({ name }) => name },
    ),
  })
  .map(({ services, nodes }) =>
    stateWith(
      services.map(({ name, type, pods }) => globalService(name, type, pods.map(pod))),
      nodes.map(({ name, zone }) => Node.fromPartial({ name, topology: { zone } })),
    ),
  );

/** As from thread to thread: nothing stays the same object. */
function led(
  former: GlobalState | undefined,
  from: GlobalState | undefined,
  to: GlobalState,
  anew = false,
) {
  const builder = new StateBuilder(former, anew);
  for (const change of stateChanges(from, to)) builder.add(structuredClone(change));
  return builder.finish();
}

const byKey = ({ services, nodes }: GlobalState) => [
  [...services.values()].sort((a, b) => (a.key < b.key ? -1 : 1)),
  [...nodes.values()].sort((a, b) => (a.name < b.name ? -1 : 1)),
];

t.test('the steps lead from any state to any other', async (t) => {
  holds(
    t,
    fc.property(fc.array(someState, { maxLength: 5 }), (states) => {
      let here: GlobalState | undefined;
      let there: GlobalState | undefined;
      for (const state of states) {
        here = led(here, there, state);
        there = state;
        assert.deepEqual(byKey(here), byKey(state));
      }
    }),
  );
});

t.test(
  'steps from nothing lead to the whole state, with the objects of the former one',
  async (t) => {
    holds(
      t,
      fc.property(someState, someState, (former, state) => {
        const result = led(former, undefined, state, true);
        assert.deepEqual(byKey(result), byKey(state));
        for (const [key, service] of result.services) {
          const before = former.services.get(key);
          const [a, b] = [before, state.services.get(key)].map((each) =>
            JSON.stringify([each?.service, each?.endpoints], (_, value) =>
              typeof value === 'bigint' ? String(value) : value,
            ),
          );
          if (a === b) assert.equal(service, before);
        }
      }),
    );
  },
);

t.test('a change of a large service is small, and what stays stays the same object', async (t) => {
  const pods = Array.from({ length: 2000 }, (_, n) => pod(n));
  const quiet = globalService('quiet', '', [pod(1)]);
  const former = stateWith([globalService('large', '', pods), quiet]);
  const added = pods.toSpliced(1000, 0, pod(5000));
  const latter = stateWith([globalService('large', '', structuredClone(added)), { ...quiet }]);
  t.match(
    [...stateChanges(former, latter)],
    [
      { kind: 'service', key: 'd/large', service: undefined, head: 1000, tail: 1000 },
      { kind: 'endpoints', endpoints: [{ podName: 'pod-5000' }] },
    ],
  );
  const result = led(former, former, latter);
  const large = result.services.get('d/large');
  t.equal(large?.service, former.services.get('d/large')?.service);
  t.equal(large?.endpoints.filter((each) => pods.includes(each)).length, 2000);
  t.equal(result.services.get('d/quiet'), former.services.get('d/quiet'));
});
