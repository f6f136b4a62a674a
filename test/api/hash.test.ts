import t from 'tap';
import { EndpointInfo, Node, ServiceInfo } from '../../src/api/generated/globalv1/api.ts';
import { Endpoint, Service } from '../../src/api/generated/localv1/api.ts';
import { hashText, loadHasher } from '../../src/api/hash.ts';
import { globalEndpointPath, globalServicePath } from '../../src/api/paths.ts';

const hasher = await loadHasher();

const web = Service.fromPartial({
  namespace: 'demo',
  name: 'web',
  type: 'ClusterIP',
  ips: { clusterIPs: { v4: ['10.96.0.10'] }, externalIPs: {} },
  ports: [{ name: 'http', protocol: 1, port: 80, targetPort: 8080 }],
});

const pod = { ips: { v4: ['10.1.0.5'] }, portOverrides: [{ name: 'http', port: 8080 }] };

t.test('XXH64 agrees with its published values', async (t) => {
  t.equal(hashText(hasher.bytes(Buffer.alloc(0))), 'ef46db3751d8e999');
  t.equal(hashText(hasher.bytes(Buffer.from('a'))), 'd24ec4f1a98c6e5b');
  t.equal(hashText(hasher.bytes(Buffer.from('abc'))), '44bc2cf5ad770999');
});

t.test('V2 (kept): hash of a plain service', async (t) => {
  t.equal(hasher.service(web), 10397557666300382348n);
  t.equal(hasher.service(web), 0x904b8b9bdf794c8cn);
  t.equal(globalServicePath(web.namespace, web.name), 'demo|web||');
});

t.test('V5 (kept): hash, paths and bytes of a global endpoint', async (t) => {
  const info = EndpointInfo.fromPartial({
    namespace: 'demo',
    sourceName: 'web-abcde',
    serviceName: 'web',
    endpoint: pod,
    conditions: { ready: true },
    podName: 'web-0',
    topology: { node: 'node-a', zone: 'zone-1' },
  });
  info.hash = hasher.endpointInfo(info);
  t.equal(info.hash, 4407928699034715638n);
  const key = hashText(info.hash);
  t.equal(globalEndpointPath({ ...info, key }), 'demo|web|web-abcde|3d2c1bcc2d36c5f6');
  t.equal(
    globalEndpointPath({ ...info, serviceName: '', key }),
    'demo||web-abcde|3d2c1bcc2d36c5f6',
  );
  t.equal(
    Buffer.from(EndpointInfo.encode(info).finish()).toString('hex'),
    '08f68bdbe9c2f986963d120464656d6f1a097765622d616263646522037765623217120a0a0831302e312e302e352209' +
      '0a046874747010903f3a02080142057765622d304a100a066e6f64652d6112067a6f6e652d31',
  );
});

t.test('V5 (kept): names and hints do not change the hash of an endpoint', async (t) => {
  const hashed = { endpoint: pod, conditions: { ready: true }, topology: { node: 'n', zone: 'z' } };
  const info = EndpointInfo.fromPartial(hashed);
  const other = EndpointInfo.fromPartial({
    ...hashed,
    hash: 7n,
    namespace: 'x',
    podName: 'p',
    hints: { zones: ['z'] },
  });
  t.equal(hasher.endpointInfo(info), hasher.endpointInfo(other));
  const notReady = EndpointInfo.fromPartial({ ...hashed, conditions: { ready: false } });
  t.not(hasher.endpointInfo(info), hasher.endpointInfo(notReady));
});

t.test('V5 (kept): key of an endpoint without a pod, on its node and elsewhere', async (t) => {
  const scopes = { internal: true, external: true };
  const here = Endpoint.fromPartial({ ...pod, local: true, scopes });
  const elsewhere = Endpoint.fromPartial({ ...pod, local: false, scopes });
  t.equal(hasher.endpointKey(here), 'de09cf017a7802d8');
  t.equal(hasher.endpointKey(elsewhere), '3ddb39e30288c3e6');
});

t.test('V6 (kept): hash of a node', async (t) => {
  const node = Node.fromPartial({
    name: 'node-a',
    labels: { 'topology.kubernetes.io/zone': 'zone-1' },
    topology: { node: 'node-a', zone: 'zone-1' },
  });
  t.equal(hashText(hasher.node(node)), 'e565715f2c521e6e');
});

t.test('hex keys have no leading zeros', async (t) => {
  t.equal(hashText(0x0abcn), 'abc');
});

t.test('the order in which labels were added does not change a hash', async (t) => {
  const labels = { b: '2', a: '1' };
  const turned = { a: '1', b: '2' };
  const one = Service.fromPartial({ ...web, labels, annotations: turned, healthCheckNodePort: 9 });
  const two = Service.fromPartial({ ...web, labels: turned, annotations: labels });
  t.equal(hasher.service(one), hasher.service({ ...two, healthCheckNodePort: 9 }));
  t.equal(
    hasher.node(Node.fromPartial({ labels })),
    hasher.node(Node.fromPartial({ labels: turned })),
  );
});

// A key that looks like an array index moves to the front of every JavaScript object, whatever the
// order of insertion; as text, "10" comes before "9".
t.test('map entries are hashed in text order, empty values included', async (t) => {
  const labels = { '9': 'x', '10': '', a: 'y' };
  const service = Service.fromPartial({ namespace: 'n', labels, healthCheckNodePort: 1 });
  const entries = ['42060a0231301200', '42060a0139120178', '42060a0161120179'].join('');
  const bytes = Buffer.from(`0a016e${entries}6801`, 'hex');
  const info = Buffer.concat([Buffer.from([0x12, bytes.length]), bytes]);
  t.equal(hasher.service(service), hasher.bytes(info));
  t.strictSame(ServiceInfo.decode(info).service, service);
});

t.test('every field of a service is part of its hash', async (t) => {
  const base = hasher.service(web);
  const changes: Parameters<typeof Service.fromPartial>[0][] = [
    { namespace: 'x' },
    { type: 'NodePort' },
    { ips: { headless: true } },
    { mapIP: true },
    { ports: [] },
    { externalTrafficToLocal: true },
    { labels: { a: 'b' } },
    { annotations: { a: 'b' } },
    { ipFilters: [{ sourceRanges: ['10.0.0.0/8'] }] },
    { sessionAffinity: { $case: 'clientIP', value: { timeoutSeconds: 0 } } },
    { internalTrafficToLocal: true },
    { healthCheckNodePort: 1 },
  ];
  const seen = new Set([base]);
  for (const change of changes) {
    const hash = hasher.service(Service.fromPartial({ ...web, ...change }));
    t.notOk(seen.has(hash), JSON.stringify(change));
    seen.add(hash);
  }
});

t.test('the hash function is loaded once', async (t) => {
  t.equal(await loadHasher(), hasher);
});
