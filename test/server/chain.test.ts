/** State that goes through servers and clients, and must come out as it went in. */
import assert from 'node:assert/strict';
import { setTimeout as wait } from 'node:timers/promises';
import * as fc from 'fast-check';
import t from 'tap';
import { globalClient, KpngClient } from '../../src/client/client.ts';
import { parseTarget } from '../../src/client/target.ts';
import type { ApiServer } from '../../src/server/server.ts';
import { itemJson } from '../../src/api/json.ts';
import type { LocalView } from '../../src/store/local-view.ts';
import { contentOf, startApiRig, portOf } from '../support/api-rig.ts';
import { NODES, perform, step } from '../support/cluster.ts';
import { holdsAsync } from '../support/property.ts';
import { until } from '../support/until.ts';

function targetOf(server: ApiServer) {
  return parseTarget(`127.0.0.1:${portOf(server)}`);
}

t.test('store, server, client, server, local client', async (t) => {
  await holdsAsync(
    t,
    fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
      const first = await startApiRig(t);
      const second = await startApiRig(t);
      const stop = new AbortController();
      t.teardown(() => stop.abort());
      const views = new Map<ApiServer, LocalView>();
      const follow = async (server: ApiServer): Promise<void> => {
        const client = new KpngClient({ target: targetOf(server), nodeName: NODES[0] });
        await client.run({ sync: async ({ view }) => void views.set(server, view) }, stop.signal);
      };
      first.cluster.complete();
      const source = globalClient({ target: targetOf(first.server) });
      const running = [source.feed(second.cluster.store, stop.signal), follow(second.server)];
      for (const [index, each] of steps.entries()) {
        perform(first.cluster, each);
        if (index % 7 === 0) await wait(0);
      }
      running.push(follow(first.server));
      first.cluster.service('zz/end');
      const servers = [first.server, second.server];
      await until(() => servers.every((each) => views.get(each)?.get('zz/end') !== undefined));
      assert.deepEqual(contentOf(second.cluster.store), contentOf(first.cluster.store));
      const [direct, through] = servers.map((each) =>
        [...(views.get(each)?.entries() ?? [])].map(
          ({ service, endpoints }) =>
            `${itemJson(service, endpoints.values())}${[...endpoints.keys()].join()}`,
        ),
      );
      assert.deepEqual(through, direct);
      stop.abort();
      await Promise.all(running);
      for (const { close, server } of [first, second]) {
        close();
        server.destroy();
      }
    }),
    6000,
  );
});
