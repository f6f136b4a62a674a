/** State that goes through servers and clients, and must come out as it went in. */
import assert from 'node:assert/strict';
import { setTimeout as wait } from 'node:timers/promises';
import * as fc from 'fast-check';
import t, { type Test } from 'tap';
import { KpngClient } from '../../src/client/client.ts';
import { GlobalClient } from '../../src/client/global-client.ts';
import { parseTarget } from '../../src/client/target.ts';
import type { ApiServer } from '../../src/server/server.ts';
import { GlobalReaders } from '../../src/store/global-readers.ts';
import { itemJson } from '../../src/api/json.ts';
import type { GlobalStore } from '../../src/store/global-store.ts';
import type { LocalView } from '../../src/store/local-view.ts';
import { startApiRig, itemsOf, opText, portOf } from '../support/api-rig.ts';
import { emptyCluster, NODES, perform, step } from '../support/cluster.ts';
import { holdsAsync } from '../support/property.ts';
import { until } from '../support/until.ts';

function targetOf(server: ApiServer) {
  return parseTarget(`127.0.0.1:${portOf(server)}`);
}

/** Every entry of a store, with its bytes. */
function contentOf(store: GlobalStore): string[] {
  const changes = new GlobalReaders(store).open(() => {}).next('');
  return [...(changes ?? [])]
    .flatMap(itemsOf)
    .map((item) => `${opText(item)} ${JSON.stringify(item)}`);
}

/** A client of one server that feeds the store of another. */
async function follow(t: Test, server: ApiServer) {
  const cluster = await emptyCluster();
  const stop = new AbortController();
  t.teardown(() => stop.abort());
  const done = new GlobalClient({ target: targetOf(server) }).feed(cluster.store, stop.signal);
  const rig = await startApiRig(t, { cluster });
  return {
    ...rig,
    async end() {
      stop.abort();
      await done;
      rig.close();
      rig.server.destroy();
    },
  };
}

t.test('store, server, client, server, local client', async (t) => {
  await holdsAsync(
    t,
    fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
      const first = await startApiRig(t);
      first.cluster.complete();
      const second = await follow(t, first.server);
      let view: LocalView | undefined;
      const stop = new AbortController();
      t.teardown(() => stop.abort());
      const local = new KpngClient({ target: targetOf(second.server), nodeName: NODES[0] });
      const done = local.run(
        {
          sync: async (change) => {
            view = change.view;
          },
        },
        stop.signal,
      );
      for (const [index, each] of steps.entries()) {
        perform(first.cluster, each);
        if (index % 7 === 0) await wait(0);
      }
      first.cluster.service('zz/end');
      await until(() => view?.get('zz/end') !== undefined);
      assert.deepEqual(contentOf(second.cluster.store), contentOf(first.cluster.store));
      let direct: LocalView | undefined;
      const near = new KpngClient({
        target: targetOf(first.server),
        nodeName: NODES[0],
        once: true,
      });
      await near.run({
        sync: async (change) => {
          direct = change.view;
        },
      });
      const lines = (of: LocalView | undefined): string[] =>
        [...(of?.entries() ?? [])].map(
          ({ service, endpoints }) =>
            `${itemJson(service, endpoints.values())}${[...endpoints.keys()].join()}`,
        );
      assert.deepEqual(lines(view), lines(direct));
      stop.abort();
      await done;
      await second.end();
      first.close();
      first.server.destroy();
    }),
    6000,
  );
});
