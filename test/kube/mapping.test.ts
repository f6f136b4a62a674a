import t from 'tap';
import { EndpointInfo, ServiceInfo } from '../../src/api/generated/globalv1/api.ts';
import { hashText, loadHasher } from '../../src/api/hash.ts';
import { itemJson } from '../../src/api/json.ts';
import { compileGlobs } from '../../src/kube/globs.ts';
import type { Json } from '../../src/kube/json.ts';
import { mapNode, mapService, mapSlice } from '../../src/kube/map.ts';
import { DEFAULT_NODE_LABELS } from '../../src/kube/resource.ts';
import {
  type EndpointParts,
  type SliceParts,
  endpoint,
  service,
  slice,
} from '../support/fake-api/objects.ts';

const WEB = { namespace: 'demo', name: 'web' };
const NOTHING = { labels: undefined, annotations: undefined };

function mapped(spec: Json, more: { status?: Record<string, unknown> } = {}) {
  return mapService(
    WEB,
    service('demo/web', '10.96.0.10', { spec: { ...spec }, ...more }),
    NOTHING,
  );
}

function sliceOf(endpoints: unknown[], parts: SliceParts = {}) {
  const name = { namespace: 'demo', name: 'web-abcde' };
  return mapSlice(name, slice('demo/web-abcde', endpoints, parts));
}

function only(parts: EndpointParts): EndpointInfo {
  const [info] = sliceOf([endpoint('10.1.0.5', parts)]).endpoints;
  if (info === undefined) throw new Error('no endpoint');
  return info;
}

t.test('V2 (kept): a plain service', async (t) => {
  const hasher = await loadHasher();
  const web = mapService(
    WEB,
    service('demo/web', '10.96.0.10', { labels: { app: 'x' }, annotations: { note: 'y' } }),
    NOTHING,
  );
  t.match(web, {
    namespace: 'demo',
    name: 'web',
    type: 'ClusterIP',
    labels: {},
    annotations: {},
    mapIP: false,
    ports: [
      { name: 'http', protocol: 1, port: 80, nodePort: 0, targetPort: 8080, targetPortName: '' },
    ],
  });
  t.equal(hasher.service(web), 10397557666300382348n);
  t.equal(
    Buffer.from(ServiceInfo.encode({ hash: 0n, service: web }).finish())
      .toString('hex')
      .slice(4),
    '0a0464656d6f12037765621a09436c7573746572495022100a0c0a0a31302e39362e302e31301200320d0a04687474701001185028903f',
  );
});

t.test('V3 (kept): a headless service with external IPs is passed on', async (t) => {
  const headless = mapped({
    clusterIP: 'None',
    clusterIPs: ['None'],
    externalIPs: ['1000::55', '10.0.0.55'],
    sessionAffinity: 'ClientIP',
  });
  t.match(headless.sessionAffinity, { value: { timeoutSeconds: 10_800 } }, 'the default');
  t.match(
    itemJson(headless, []),
    '"IPs":{"ClusterIPs":{},"ExternalIPs":{"V4":["10.0.0.55"],"V6":["1000::55"]},"Headless":true}',
  );
});

t.test('V4 (kept): a load balancer', async (t) => {
  const balanced = mapped(
    {
      type: 'LoadBalancer',
      clusterIP: 'fd00::9',
      clusterIPs: ['fd00::9', '10.0.0.9'],
      externalTrafficPolicy: 'Local',
      internalTrafficPolicy: undefined,
      sessionAffinity: 'ClientIP',
      sessionAffinityConfig: { clientIP: { timeoutSeconds: 600 } },
      loadBalancerSourceRanges: ['192.0.2.0/24', ' 198.51.100.0/24'],
      healthCheckNodePort: 32100,
      ports: [{ name: 'a', protocol: 'UDP', port: 53, nodePort: 30053, targetPort: 'dns' }],
    },
    { status: { loadBalancer: { ingress: [{ ip: '203.0.113.9' }, { hostname: 'lb.example' }] } } },
  );
  t.strictSame(balanced, {
    namespace: 'demo',
    name: 'web',
    type: 'LoadBalancer',
    ips: {
      clusterIPs: { v4: ['10.0.0.9'], v6: ['fd00::9'] },
      externalIPs: { v4: [], v6: [] },
      headless: false,
      loadBalancerIPs: { v4: ['203.0.113.9'], v6: [] },
    },
    mapIP: false,
    ports: [
      { name: 'a', protocol: 2, port: 53, nodePort: 30053, targetPort: 0, targetPortName: 'dns' },
    ],
    externalTrafficToLocal: true,
    labels: {},
    annotations: {},
    ipFilters: [{ targetIPs: undefined, sourceRanges: ['192.0.2.0/24', '198.51.100.0/24'] }],
    sessionAffinity: { $case: 'clientIP', value: { timeoutSeconds: 600 } },
    internalTrafficToLocal: false,
    healthCheckNodePort: 32100,
  });
});

t.test('load-balancer addresses', async (t) => {
  const of = (ingress: unknown[]) =>
    mapped({}, { status: { loadBalancer: { ingress } } }).ips?.loadBalancerIPs;
  t.equal(of([]), undefined, 'none at all');
  t.strictSame(of([{ hostname: 'lb.example' }]), { v4: [], v6: [] }, 'a name only');
  t.strictSame(
    of([
      { ip: '203.0.113.9', ipMode: 'VIP' },
      { ip: '203.0.113.10', ipMode: 'Proxy' },
    ]),
    { v4: ['203.0.113.9'], v6: [] },
    'traffic to the second one has to pass the load balancer',
  );
});

t.test('V21 (kept): addresses are sorted as text, each once; others are left out', async (t) => {
  const { ips } = mapped({
    externalIPs: [
      '10.0.0.9',
      '10.0.0.10',
      '10.0.0.9',
      'nope',
      '10.1',
      '10.0.0.01',
      'fe80::1%eth0',
      '',
      '::2',
      '::1',
      '::ffff:1.2.3.4',
    ],
  });
  t.strictSame(ips?.externalIPs, {
    v4: ['10.0.0.10', '10.0.0.9', '::ffff:1.2.3.4'],
    v6: ['::1', '::2'],
  });
});

t.test('protocols', async (t) => {
  // The last two are what every object has, which a message cannot be made of.
  const names = [undefined, 'TCP', 'UDP', 'SCTP', 'QUIC', 'constructor', '__proto__'];
  const ports = names.map((protocol) => ({ port: 1, protocol }));
  t.strictSame(
    mapped({ ports }).ports.map(({ protocol }) => protocol),
    [1, 1, 2, 3, 0, 0, 0],
  );
});

t.test('V5 (kept): a slice', async (t) => {
  const hasher = await loadHasher();
  const source = sliceOf([
    endpoint('10.1.0.5', { zone: 'zone-1', conditions: { ready: true }, pod: 'web-0' }),
  ]);
  t.match(source, { namespace: 'demo', name: 'web-abcde', serviceName: 'web' });
  const [info] = source.endpoints;
  if (info === undefined) throw new Error('no endpoint');
  const hash = hasher.endpointInfo(info);
  t.equal(hash, 4407928699034715638n);
  t.equal(hashText(hash), '3d2c1bcc2d36c5f6');
  t.equal(
    Buffer.from(EndpointInfo.encode({ ...info, hash }).finish()).toString('hex'),
    '08f68bdbe9c2f986963d120464656d6f1a097765622d616263646522037765623217120a0a0831302e312e302e3522090a046874747010903f3a02080142057765622d304a100a066e6f64652d6112067a6f6e652d31',
  );
});

t.test('V6 (kept): a node', async (t) => {
  const hasher = await loadHasher();
  const labels = compileGlobs(DEFAULT_NODE_LABELS);
  const raw = { metadata: { labels: { 'topology.kubernetes.io/zone': 'zone-1', foo: 'bar' } } };
  const mappedNode = mapNode({ namespace: '', name: 'node-a' }, raw, {
    labels,
    annotations: undefined,
  });
  t.strictSame(mappedNode, {
    name: 'node-a',
    labels: { 'topology.kubernetes.io/zone': 'zone-1' },
    annotations: {},
    topology: { node: 'node-a', zone: 'zone-1' },
  });
  t.equal(hasher.node(mappedNode), 0xe565715f2c521e6en);
  const bare = mapNode({ namespace: '', name: 'node-a' }, raw, NOTHING);
  t.match(
    bare,
    { labels: {}, topology: { node: 'node-a', zone: 'zone-1' } },
    'a zone without label',
  );
});

t.test('V7 (different): conditions', async (t) => {
  const [no, yes] = [false, true];
  for (const [given, mapped] of [
    [{}, undefined],
    [{ ready: yes, serving: yes, terminating: no }, [yes, no, no]],
    [{ ready: no, serving: yes, terminating: yes }, [no, yes, yes]],
    [{ ready: no }, [no, no, no]],
  ] as const) {
    const [ready, serving, terminating] = mapped ?? [];
    const conditions = mapped && { ready, serving, terminating };
    t.strictSame(only({ conditions: given }).conditions, conditions);
  }
});

t.test('hints for zones and nodes, sorted', async (t) => {
  t.equal(only({}).hints, undefined);
  t.strictSame(only({ hints: {} }).hints, { zones: [], nodes: [] });
  const forZones = [{ name: 'south' }, { name: 'north' }];
  t.strictSame(only({ hints: { forZones, forNodes: [{ name: 'node-b' }] } }).hints, {
    zones: ['north', 'south'],
    nodes: ['node-b'],
  });
});

t.test('location and name of an endpoint', async (t) => {
  t.match(only({ zone: 'north', hostname: 'web-0', pod: 'web-0' }), {
    topology: { node: 'node-a', zone: 'north' },
    endpoint: { hostname: 'web-0' },
    podName: 'web-0',
  });
  t.match(only({ pod: null, nodeName: '' }), { podName: '', topology: { node: '', zone: '' } });
  t.equal(only({ targetRef: { kind: 'Node', name: 'node-a' } }).podName, '', 'no pod');
});

t.test('ports of a slice: without a name, and without a number', async (t) => {
  const ports = [{ port: 80 }, { name: 'any', port: null }, { name: 'dns', port: 53 }, null];
  const [info] = sliceOf([endpoint('10.1.0.5')], { ports }).endpoints;
  t.strictSame(info?.endpoint?.portOverrides, [
    { name: '', port: 80 },
    { name: 'dns', port: 53 },
  ]);
});
