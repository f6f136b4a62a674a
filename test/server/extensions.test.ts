/** What clients of this program get over the local API beyond what kpng's own messages can say. */
import t from 'tap';
import { KpngClient } from '../../src/client/client.ts';
import { parseTarget } from '../../src/client/target.ts';
import { portOf, startApiRig } from '../support/api-rig.ts';
import { draining, pod } from '../support/cluster.ts';
import { RecordingSink } from '../support/recording-sink.ts';

const BOTH_LOCAL = { externalTrafficToLocal: true, internalTrafficToLocal: true };

t.test('whether an endpoint is ready, and which one clients in the cluster may use', async (t) => {
  const { cluster, server } = await startApiRig(t);
  cluster.service('demo/web', BOTH_LOCAL).endpoints('demo/web', pod('far', '10.0.0.2', 'n2'));
  cluster.complete();
  const target = parseTarget(`127.0.0.1:${portOf(server)}`);
  const sinkOf = (clusterScope: boolean): RecordingSink => {
    const stop = new AbortController();
    const sink = new RecordingSink();
    const running = new KpngClient({ target, nodeName: 'n1', clusterScope }).run(sink, stop.signal);
    t.teardown(async () => {
      stop.abort();
      await running;
    });
    return sink;
  };
  const [proxy, other] = [sinkOf(true), sinkOf(false)];
  t.same((await other.next()).shape, ['demo/web()'], 'only for those that ask for it');
  const first = await proxy.next();
  const endpointsIn = ({ view }: typeof first) => view.get('demo/web')?.endpoints;
  const scopes = { internal: false, external: false, cluster: true };
  t.match(endpointsIn(first)?.get('far'), { scopes, local: false, terminating: undefined });

  cluster.endpoints('demo/web', draining(pod('near', '10.0.0.1', 'n1')));
  for (const sink of [proxy, other]) {
    const near = endpointsIn(await sink.next())?.get('near');
    t.match(near, { local: true, terminating: true, scopes: { external: true } });
  }
});
