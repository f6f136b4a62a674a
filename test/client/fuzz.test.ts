/** What a hostile or faulty kpng server sends: single operations, and any bytes as far as they get into a state. */
import * as fc from 'fast-check';
import t from 'tap';
import { EndpointInfo, NodeInfo, ServiceInfo } from '../../src/api/generated/globalv1/api.ts';
import { OpItem, Protocol, Service } from '../../src/api/generated/localv1/api.ts';
import { itemJson } from '../../src/api/json.ts';
import { decodeOp } from '../../src/api/ops.ts';
import { writeChanges } from '../../src/client/client.ts';
import { StagedState } from '../../src/store/change-set.ts';
import { opInvalid } from '../../src/store/events.ts';
import { LocalState } from '../../src/store/local-state.ts';
import { checkPassedOn } from '../support/api-rig.ts';
import { emptyCluster } from '../support/cluster.ts';
import { startClientRig } from '../support/kpng-server.ts';
import {
  deleteEndpoint,
  deletePath,
  deleteService,
  endpoint,
  reset,
  service,
  setBytes,
  setEndpoint,
  setService,
  sync,
} from '../support/messages.ts';
import { holds, holdsAsync, mutations } from '../support/property.ts';
import { collect } from '../support/sockets.ts';

const web = setService(service('demo/web'));
const api = setService(service('demo/api'));
const web0 = setEndpoint('demo/web/web-0', endpoint('10.1.0.5'));
const BAD = Buffer.from('ffff', 'hex');

t.test('bad operations are named and counted, the good ones around them count', async (t) => {
  const events = collect(t, opInvalid);
  const { server, sink, errors } = await startClientRig(t);
  const stream = await server.answer(
    reset,
    setBytes(1, 'demo/api', BAD),
    web,
    setBytes(7, 'demo/x', BAD),
    web0,
    BAD,
    sync,
  );
  t.strictSame((await sink.next()).shape, ['demo/web(web-0)']);
  for (const message of [/service "demo\/api"/, /set 7/, /cannot be decoded/]) {
    t.match(await errors.take(), { code: 'KPNG_OP_INVALID', message });
  }
  t.equal(events.length, 3);
  t.equal(events[0]?.source, `local API at ${server.target.text}`);

  await stream.request(); // The stream lives on.
  stream.send(api, sync);
  t.strictSame((await sink.next()).shape, ['demo/api()', 'demo/web(web-0)']);
});

t.test('a Reset within a change set is reported, and what follows it applies', async (t) => {
  const { server, sink, errors } = await startClientRig(t);
  const stream = await server.answer(reset, reset, web, web0, reset, api, web, sync);
  const { shape } = await sink.next();
  t.strictSame(shape, ['demo/api()', 'demo/web()']);
  const error = await errors.take();
  t.equal(error.code, 'KPNG_OP_INVALID');
  t.match(error.message, /Reset within a change set: discarded the 2 operations before it/);
  t.equal(errors.size, 0, 'a Reset at the start is none, however often');
  await stream.answer(web0, reset, web, web0, api, sync);
  t.strictSame((await sink.next()).shape, ['demo/api()', 'demo/web(web-0)']);
  t.match((await errors.take()).message, /the operation before it/);
});

t.test('endpoints without their service are reported once, and used when it comes', async (t) => {
  const { server, sink, errors } = await startClientRig(t);
  const stream = await server.stream();
  await stream.request();
  const lost = ['a', 'b'].map((key) => setEndpoint(`demo/lost/${key}`, endpoint('10.1.0.6')));
  stream.send(reset, web0, ...lost, setBytes(1, 'demo/api', BAD));
  stream.send(setEndpoint('demo/api/api-0', endpoint('10.1.0.7')), web, sync);
  t.strictSame((await sink.next()).shape, ['demo/web(web-0)']);
  t.match((await errors.take()).message, /service "demo\/api"/);
  const error = await errors.take();
  t.equal(error.code, 'KPNG_OP_INVALID');
  t.match(error.message, /endpoint "demo\/lost\/a" and of 1 more: there is no such service/);
  t.equal(errors.size, 0, 'a damaged service is reported once');

  await stream.answer(api, deleteEndpoint('demo/gone/x'), sync);
  t.strictSame((await sink.next()).shape, ['demo/api(api-0)', 'demo/web(web-0)']);
  await stream.answer(setService(service('demo/lost')), sync);
  t.strictSame((await sink.next()).changed, ['demo/lost']);
  await stream.request();
  t.equal(errors.size, 0);
});

/** A service whose many ports take two bytes each on the wire. */
function manyPorts(ports: number): Buffer {
  const names = service('demo/big', { type: '' });
  return Buffer.concat([Service.encode(names).finish(), ...Array(ports).fill(Buffer.of(50, 0))]);
}

t.test('a too large state is dropped before its Sync, and retried ever later', async (t) => {
  const rig = await startClientRig(t, { stateLimits: { maxEntries: 20, maxBytes: 20_000 } });
  for (const [wait, ...flood] of [
    [1000, ...[...Array(21).keys()].map((n) => setService(service(`demo/s${n}`)))],
    [1600, setBytes(1, 'demo/big', manyPorts(500))],
    [2560, deleteService(`demo/${'x'.repeat(20_000)}`)],
  ] as const) {
    const stream = await rig.server.answer(reset, web, sync);
    const { view } = await rig.sink.next();
    await stream.answer(...flood);
    t.equal((await rig.errors.take()).code, 'KPNG_STATE_TOO_LARGE');
    await stream.closed;
    t.equal(view.size, 1, 'what is served stays');
    await rig.retryAfter(wait);
  }
  await rig.server.answer(reset, web, api, sync);
  t.strictSame((await rig.sink.next()).shape, ['demo/api()', 'demo/web()']);
});

const fullService = service('demo/web', {
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
const fullEndpoint = endpoint('10.1.0.5', {
  hostname: 'web-0',
  portOverrides: [{ name: 'http', port: 8081 }],
});
const info = EndpointInfo.fromPartial({
  namespace: 'demo',
  serviceName: 'web',
  sourceName: 's',
  podName: 'web-0',
  endpoint: fullEndpoint,
  conditions: { ready: true },
  topology: { node: 'n1', zone: 'north' },
  hints: { zones: ['north'], nodes: ['n1'] },
});
const node = { name: 'n1', labels: { a: 'b' }, topology: { node: 'n1', zone: 'north' } };

const bytesOf = (items: readonly OpItem[]) => items.map((item) => OpItem.encode(item).finish());
const LOCAL = bytesOf([
  setService(fullService),
  setEndpoint('demo/web/web-0', fullEndpoint),
  deleteService('demo/web'),
  deleteEndpoint('demo/web/web-0'),
  reset,
  sync,
]);
const GLOBAL = bytesOf([
  setBytes(10, 'demo|web||', ServiceInfo.encode({ hash: 1n, service: fullService }).finish()),
  setBytes(11, 'demo|web|s|a', EndpointInfo.encode(info).finish()),
  setBytes(12, '|n1||', NodeInfo.encode(NodeInfo.fromPartial({ node })).finish()),
  deletePath(10, 'demo|web||'),
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
