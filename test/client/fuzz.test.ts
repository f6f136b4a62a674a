/** Bytes of a hostile kpng server, as far as they get: decoded, taken into a state, and passed on. */
import * as fc from 'fast-check';
import t from 'tap';
import { EndpointInfo, NodeInfo, ServiceInfo } from '../../src/api/generated/globalv1/api.ts';
import { OpItem, Protocol } from '../../src/api/generated/localv1/api.ts';
import { itemJson } from '../../src/api/json.ts';
import { decodeOp } from '../../src/api/ops.ts';
import { writeChanges } from '../../src/client/client.ts';
import { LocalState } from '../../src/store/local-state.ts';
import { StagedState } from '../../src/store/change-set.ts';
import { emptyCluster } from '../support/cluster.ts';
import { checkPassedOn } from '../support/api-rig.ts';
import {
  deleteEndpoint,
  deleteService,
  endpoint,
  reset,
  service,
  setBytes,
  setEndpoint,
  setService,
  sync,
} from '../support/messages.ts';
import { mutations, holds, holdsAsync } from '../support/property.ts';

const web = service('demo/web', {
  labels: { app: 'web', __proto__: 'x' },
  annotations: { 'a/b': '' },
  ips: {
    clusterIPs: { v4: ['10.96.0.1'], v6: ['fd00::1'] },
    externalIPs: { v4: ['192.0.2.1'] },
    loadBalancerIPs: { v6: ['2001:db8::1'] },
  },
  ports: [{ name: 'http', protocol: Protocol.TCP, port: 80, nodePort: 30080, targetPort: 8080 }],
  ipFilters: [{ sourceRanges: ['10.0.0.0/8'], targetIPs: { v4: ['192.0.2.1'] } }],
  sessionAffinity: { $case: 'clientIP', value: { timeoutSeconds: 10 } },
});
const web0 = endpoint('10.1.0.5', {
  hostname: 'web-0',
  portOverrides: [{ name: 'http', port: 8081 }],
});
const info = EndpointInfo.fromPartial({
  namespace: 'demo',
  serviceName: 'web',
  sourceName: 's',
  podName: 'web-0',
  endpoint: web0,
  conditions: { ready: true },
  topology: { node: 'n1', zone: 'north' },
  hints: { zones: ['north'], nodes: ['n1'] },
});
const node = { name: 'n1', labels: { a: 'b' }, topology: { node: 'n1', zone: 'north' } };

const bytesOf = (items: readonly OpItem[]) => items.map((item) => OpItem.encode(item).finish());
const LOCAL = bytesOf([
  setService(web),
  setEndpoint('demo/web/web-0', web0),
  deleteService('demo/web'),
  deleteEndpoint('demo/web/web-0'),
  reset,
  sync,
]);
const GLOBAL = bytesOf([
  setBytes(10, 'demo|web||', ServiceInfo.encode({ hash: 1n, service: web }).finish()),
  setBytes(11, 'demo|web|s|a', EndpointInfo.encode(info).finish()),
  setBytes(12, '|n1||', NodeInfo.encode(NodeInfo.fromPartial({ node })).finish()),
  { op: { $case: 'delete', value: { set: 10, path: 'demo|web||' } } },
  reset,
  sync,
]);

// The time limit of `holds` ends the search.
fc.configureGlobal({ numRuns: 100_000 });

t.test('after any data from a local API, the state can be used', (t) => {
  const ops = fc.array(fc.oneof(fc.constantFrom(...LOCAL), mutations(LOCAL)), { maxLength: 12 });
  holds(
    t,
    fc.property(ops, (messages) => {
      const state = new LocalState();
      for (const message of messages) {
        const op = decodeOp('local', message);
        if (op.kind === 'reset') state.reset();
        else if (op.kind === 'sync') state.sync();
        else state.apply(op);
      }
      const { view } = state.sync();
      for (const { service, endpoints } of view.entries()) {
        const line = itemJson(service, endpoints.values());
        if (line.includes('\n')) throw new Error('more than a line');
        JSON.parse(line);
      }
    }),
  );
  t.end();
});

t.test('after any data from a global API, the state can be passed on', async (t) => {
  const ops = fc.array(fc.oneof(fc.constantFrom(...GLOBAL), mutations(GLOBAL)), { maxLength: 12 });
  await holdsAsync(
    t,
    fc.asyncProperty(ops, async (messages) => {
      const { store } = await emptyCluster();
      const state = new StagedState();
      const complete = () => store.updateInParts((transaction) => writeChanges(state, transaction));
      for (const message of messages) {
        const op = decodeOp('global', message);
        if (op.kind === 'reset') state.reset();
        else if (op.kind === 'sync') await complete();
        else state.apply(op);
      }
      await complete();
      checkPassedOn(store);
    }),
  );
});
