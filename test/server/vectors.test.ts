/** The vectors of kpng's stream protocol. */
import t, { type Test } from 'tap';
import { Endpoint, OpItem } from '../../src/api/generated/localv1/api.ts';
import { opText, startApiRig } from '../support/api-rig.ts';
import { anonymous, notReady, pod } from '../support/cluster.ts';

const WEB = pod('web-0', '10.1.0.5', 'node-a', {
  endpoint: { ips: { v4: ['10.1.0.5'] }, portOverrides: [{ name: 'http', port: 8080 }] },
  topology: { node: 'node-a', zone: 'zone-1' },
});

/** The state of V11, and a client that has got it. */
async function watched(t: Test) {
  const rig = await startApiRig(t);
  rig.cluster
    .service('demo/api')
    .service('demo/web')
    .slice('demo/web', 'web-abcde', WEB)
    .slice('demo/api', 'api-abcde', anonymous('10.1.0.6', 'node-b'))
    .complete();
  const call = rig.watch();
  call.request('node-a');
  return { ...rig, call, first: await call.changeSet() };
}

t.test('V5 (kept, different): a slice in the global API', async (t) => {
  const { watchGlobal } = await watched(t);
  const call = watchGlobal();
  call.request();
  const items = await call.changeSet();
  const web = items.find(
    ({ op }) => op?.$case === 'set' && op.value.ref?.path.includes('web-abcde'),
  );
  await t.test('kept: path and bytes', async (t) => {
    t.equal(opText(web ?? OpItem.create()), 'S11 demo|web|web-abcde|3d2c1bcc2d36c5f6');
    t.equal(
      web?.op?.$case === 'set' && Buffer.from(web.op.value.bytes).toString('hex'),
      '08f68bdbe9c2f986963d120464656d6f1a097765622d616263646522037765623217120a0a0831302e312e302e352209' +
        '0a046874747010903f3a02080142057765622d304a100a066e6f64652d6112067a6f6e652d31',
    );
  });
  await t.test('different: it is sent once, not again without the service', async (t) => {
    t.strictSame(
      items.map(opText).filter((text) => text.includes('||')),
      ['S10 demo|api||', 'S10 demo|web||'],
    );
  });
});

t.test('V11 (kept): the first change set', async (t) => {
  const { first } = await watched(t);
  const [reset, ...rest] = first.map(opText);
  t.equal(reset, 'R');
  t.strictSame(rest.slice(0, 3), ['S1 demo/api', 'S1 demo/web', 'S2 demo/web/web-0']);
  t.match(rest[3], /^S2 demo\/api\/[0-9a-f]{1,16}$/);
  t.strictSame(rest.slice(4), ['Y']);
  t.equal(
    Buffer.from(OpItem.encode(first[3] ?? OpItem.create()).finish()).toString('hex'),
    '12350a120802120e64656d6f2f7765622f7765622d30121f120a0a0831302e312e302e35180122090a046874747010' +
      '903f2a0408011001',
  );
});

t.test('V12 (kept): the next change sets', async (t) => {
  const { cluster, call, first } = await watched(t);
  const old = first.map(opText).find((text) => text.startsWith('S2 demo/api')) ?? '';
  const next = () => call.ask('node-a');
  await t.test('(a) an endpoint goes, another comes', async (t) => {
    cluster.slice('demo/web', 'web-abcde', notReady(WEB), pod('web-1', '10.1.0.7'));
    t.strictSame(await next(), ['S2 demo/web/web-1', 'D2 demo/web/web-0', 'Y']);
  });
  await t.test('(b) an address changes', async (t) => {
    cluster.slice('demo/web', 'web-abcde', notReady(WEB), pod('web-1', '10.1.0.8'));
    t.strictSame(await next(), ['S2 demo/web/web-1', 'Y']);
  });
  await t.test('(c) the address of an endpoint without a pod changes', async (t) => {
    cluster.slice('demo/api', 'api-abcde', anonymous('10.1.0.9', 'node-b'));
    const [gone, come, end] = await next();
    t.equal(gone, old.replace('S', 'D'));
    t.match(come, /^S2 demo\/api\//);
    t.equal(end, 'Y');
  });
  await t.test('(d) a service goes', async (t) => {
    cluster.deleteService('demo/api');
    const [endpoint, ...rest] = await next();
    t.match(endpoint, /^D2 demo\/api\//);
    t.strictSame(rest, ['D1 demo/api', 'Y']);
  });
  await t.test('(e) what does not concern the node leaves the request pending', async (t) => {
    call.request('node-a');
    cluster.node('node-z', 'zone-9');
    cluster.service('demo/later');
    t.strictSame(await call.texts(), ['S1 demo/later', 'Y'], 'the first thing that came');
  });
  await t.test('(f) three changes between two requests are one change set', async (t) => {
    cluster.service('demo/x').deleteService('demo/later').service('demo/x', { type: 'NodePort' });
    t.strictSame(await next(), ['S1 demo/x', 'D1 demo/later', 'Y']);
  });
});

t.test('V13 (kept, different): a client that asks before the state is complete', async (t) => {
  const { cluster, watch } = await startApiRig(t);
  const call = watch();
  call.request('n');
  await t.test('kept: it gets a Reset, and nothing else', async (t) => {
    t.equal(opText(await call.next()), 'R');
    cluster.service('demo/web');
    cluster.store.update((transaction) => transaction.setComplete('services', 'nodes'));
    cluster.deleteService('demo/web');
  });
  await t.test('different: then a Sync, even of an empty state', async (t) => {
    cluster.store.update((transaction) => transaction.setComplete('endpoints'));
    t.strictSame(await call.texts(), ['Y']);
  });
  await t.test('kept: the first service is a change set', async (t) => {
    call.request('n');
    cluster.service('demo/web');
    t.strictSame(await call.texts(), ['S1 demo/web', 'Y']);
  });
});

t.test('V10 (different): a dual-stack pod is one endpoint, and is not sent again', async (t) => {
  const { cluster, watch } = await startApiRig(t);
  const v6 = pod('shop-0', '', '', { endpoint: { ips: { v6: ['fd00::5'] } } });
  cluster.service('demo/shop').slice('demo/shop', 'shop-4aaaa', pod('shop-0', '10.1.0.5'));
  cluster.slice('demo/shop', 'shop-6bbbb', v6).complete();
  const call = watch();
  call.request('n');
  const items = await call.changeSet();
  t.strictSame(items.map(opText), ['R', 'S1 demo/shop', 'S2 demo/shop/shop-0', 'Y']);
  const { op } = items[2] ?? {};
  const endpoint = op?.$case === 'set' ? Endpoint.decode(op.value.bytes) : undefined;
  t.strictSame(endpoint?.ips, { v4: ['10.1.0.5'], v6: ['fd00::5'] });
  cluster.node('somewhere').service('demo/next');
  t.strictSame(await call.ask('n'), ['S1 demo/next', 'Y']);
});

t.test('order of a global change set (kept)', async (t) => {
  const { cluster, watchGlobal } = await startApiRig(t);
  cluster
    .node('node-b')
    .node('node-a')
    .service('demo/web')
    .service('demo/api')
    .slice('demo/web', 's', pod('web-0', '10.1.0.5'))
    .complete();
  const call = watchGlobal();
  const texts = await call.ask();
  const nodes = ['S12 |node-a||', 'S12 |node-b||'];
  t.strictSame(texts.slice(0, 5), ['R', ...nodes, 'S10 demo|api||', 'S10 demo|web||']);
  t.match(texts[5], /^S11 demo\|web\|s\|[0-9a-f]+$/);
  t.strictSame(texts.slice(6), ['Y']);
  cluster.atOnce((all) =>
    all.deleteNode('node-a').deleteService('demo/web').slice('demo/web', 's').node('node-c'),
  );
  const [node, endpoint, ...rest] = await call.ask();
  t.equal(node, 'S12 |node-c||');
  t.match(endpoint, /^D11 demo\|web\|s\|/);
  t.strictSame(rest, ['D10 demo|web||', 'D12 |node-a||', 'Y']);
});

t.test('the global API reports what the local one leaves out', async (t) => {
  const { cluster, watchGlobal } = await startApiRig(t);
  cluster.endpoints('demo/none', notReady(pod('x', '10.1.0.5'))).complete();
  const call = watchGlobal();
  const texts = await call.ask();
  t.match(texts[1], /^S11 demo\|none\|none-slice\|/);
  cluster.endpoints('demo/none', { ...notReady(pod('x', '10.1.0.5')), hints: { zones: ['z'] } });
  t.match(await call.ask(), [/^S11 demo\|none\|none-slice\|/, 'Y'], 'a change of hints alone');
});
