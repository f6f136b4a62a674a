import t from 'tap';
import type { EndpointInfo } from '../../src/api/generated/globalv1/api.ts';
import { loadHasher } from '../../src/api/hash.ts';
import { itemJson } from '../../src/api/json.ts';
import type { Json } from '../../src/kube/json.ts';
import { forwarding, mapNode, mapService, mapSlice } from '../../src/kube/map.ts';
import { DEFAULT_NODE_LABELS } from '../../src/kube/resource.ts';
import {
  type EndpointParts,
  type SliceParts,
  endpoint,
  service,
  slice,
} from '../support/fake-api/objects.ts';

const NOTHING = forwarding([], []);

function mapped(spec: Json, more: { status?: Record<string, unknown> } = {}) {
  return mapService(service('demo/web', '10.96.0.10', { spec: { ...spec }, ...more }), NOTHING);
}

function sliceOf(endpoints: unknown[], parts: SliceParts = {}) {
  return mapSlice(slice('demo/web-abcde', endpoints, parts));
}

function only(parts: EndpointParts): EndpointInfo {
  const [info] = sliceOf([endpoint('10.1.0.5', parts)]).endpoints;
  if (info === undefined) throw new Error('no endpoint');
  return info;
}

t.test('V2 (kept): a plain service', async (t) => {
  const hasher = await loadHasher();
  const web = mapService(
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
  t.equal(hasher.service(web), 10397557666300382348n, 'the hash of its bytes');
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
  const name = { hostname: 'lb.example' };
  const virtual = { ip: '203.0.113.9', ipMode: 'VIP' };
  // Traffic to this one has to pass the load balancer.
  const proxy = { ip: '203.0.113.10', ipMode: 'Proxy' };
  for (const [ingress, v4] of [
    [[], undefined],
    [[name], []],
    [[virtual, proxy], ['203.0.113.9']],
  ] as const) {
    const { ips } = mapped({}, { status: { loadBalancer: { ingress } } });
    t.strictSame(ips?.loadBalancerIPs, v4 && { v4, v6: [] });
  }
});

t.test('V21 (kept): addresses are sorted as text, each once; others are left out', async (t) => {
  const given =
    '10.0.0.9,10.0.0.10,10.0.0.9,nope,10.1,10.0.0.01,fe80::1%eth0,,::2,::1,::ffff:1.2.3.4';
  const { ips } = mapped({ externalIPs: given.split(',') });
  t.strictSame(ips?.externalIPs, {
    v4: ['10.0.0.10', '10.0.0.9', '::ffff:1.2.3.4'],
    v6: ['::1', '::2'],
  });
});

t.test('protocols', async (t) => {
  // The last two are what every object has, which a message cannot be made of.
  const names = [undefined, 'TCP', 'UDP', 'SCTP', 'QUIC', 'constructor', '__proto__'];
  const ports = names.map((protocol) => ({ port: 1, protocol }));
  const protocols = mapped({ ports }).ports.map(({ protocol }) => protocol);
  t.strictSame(protocols, [1, 1, 2, 3, 0, 0, 0]);
});

t.test('V6 (kept): a node', async (t) => {
  const hasher = await loadHasher();
  const given = { 'topology.kubernetes.io/zone': 'zone-1', foo: 'bar' };
  const raw = { metadata: { name: 'node-a', labels: given } };
  const mappedNode = mapNode(raw, forwarding(DEFAULT_NODE_LABELS, []));
  t.strictSame(mappedNode, {
    name: 'node-a',
    labels: { 'topology.kubernetes.io/zone': 'zone-1' },
    annotations: {},
    topology: { node: 'node-a', zone: 'zone-1' },
  });
  t.equal(hasher.node(mappedNode), 0xe565715f2c521e6en);
  const bare = { labels: {}, topology: { node: 'node-a', zone: 'zone-1' } };
  t.match(mapNode(raw, NOTHING), bare, 'a zone without label');
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
