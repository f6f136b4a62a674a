import assert from 'node:assert/strict';
import * as fc from 'fast-check';
import t from 'tap';
import { GlobalReaders } from '../../src/store/global-readers.ts';
import type { GlobalStore } from '../../src/store/global-store.ts';
import { LocalReaders } from '../../src/store/local-readers.ts';
import type { Readers } from '../../src/store/reader.ts';
import { ClientState } from '../support/client-state.ts';
import { emptyCluster } from '../support/cluster.ts';
import { NODES, outcomeOf, perform, step } from '../support/cluster-steps.ts';
import { itemsOf } from '../support/frames.ts';
import { holdsAsync } from '../support/property.ts';

const KINDS: Readonly<Record<string, (store: GlobalStore) => Readers>> = {
  local: (store) => new LocalReaders(store),
  global: (store) => new GlobalReaders(store),
};

/** What a new client is told. */
function stateOf(readers: Readers, nodeName: string): ClientState {
  const state = new ClientState();
  const reader = readers.open({ onEvicted: () => {} });
  for (const item of [...(reader.next(nodeName) ?? [])].flatMap(itemsOf)) state.apply(item);
  reader.close();
  return state;
}

const action = fc.oneof(
  { weight: 3, arbitrary: fc.record({ step }) },
  { weight: 2, arbitrary: fc.record({ client: fc.nat(2), node: fc.constantFrom(...NODES, '') }) },
);

for (const [kind, readersOf] of Object.entries(KINDS)) {
  t.test(`${kind}: whenever a client asks, it knows what the state is then`, async (t) => {
    await holdsAsync(
      t,
      fc.asyncProperty(fc.array(action, { maxLength: 40 }), async (actions) => {
        const cluster = (await emptyCluster()).complete();
        const readers = readersOf(cluster.store);
        const clients = [0, 1, 2].map(() => ({
          reader: readers.open({ onEvicted: () => {} }),
          state: new ClientState(),
        }));
        for (const action of actions) {
          if ('step' in action) {
            perform(cluster, action.step);
            continue;
          }
          const client = clients[action.client];
          if (client === undefined) continue;
          const changes = client.reader.next(action.node);
          for (const item of [...(changes ?? [])].flatMap(itemsOf)) client.state.apply(item);
          assert.deepEqual(client.state.sorted(), stateOf(readers, action.node).sorted());
        }
        for (const { reader } of clients) reader.close();
        assert.equal(cluster.store.history, 0);
      }),
    );
  });

  t.test(`${kind}: events one by one lead to the same as the last state at once`, async (t) => {
    await holdsAsync(
      t,
      fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
        const [events, atOnce] = [await emptyCluster(), await emptyCluster()];
        for (const each of steps) perform(events, each);
        atOnce.atOnce((all) => {
          for (const each of outcomeOf(steps)) perform(all, each);
        });
        events.complete();
        atOnce.complete();
        for (const node of NODES) {
          assert.deepEqual(
            stateOf(readersOf(events.store), node).sorted(),
            stateOf(readersOf(atOnce.store), node).sorted(),
          );
        }
        assert.equal(events.store.serviceCount, atOnce.store.serviceCount);
      }),
    );
  });
}
