import t from 'tap';
import { nodeView } from '../support/node-view.ts';
import { lines, stateOf, warningsOf } from '../support/state-file.ts';

/** The file of V22, key by key as kpng takes it. */
const BAKERY = lines(
  'nodes:',
  '- name: edge-1',
  '  topology: {node: edge-1, zone: north}',
  '  labels: {topology.kubernetes.io/zone: north}',
  '  annotations: {}',
  '- name: edge-2',
  '  topology: {node: edge-2, zone: south}',
  'services:',
  '- service:',
  '    namespace: bakery',
  '    name: oven',
  '    type: LoadBalancer',
  '    labels: {}',
  '    annotations: {}',
  '    ips:',
  '      clusterips: {v4: [10.96.10.20], v6: ["fd00:10:96::20"]}',
  '      externalips: {v4: [198.51.100.7], v6: []}',
  '      loadbalancerips: {v4: [203.0.113.9]}',
  '      headless: false',
  '    ipfilters:',
  '    - targetips: null',
  '      sourceranges: [192.0.2.0/24]',
  '    mapip: false',
  '    ports:',
  '    - {name: http, protocol: 1, port: 80, nodeport: 30080, targetport: 8080, targetportname: ""}',
  '    - {name: dns, protocol: 2, port: 53, nodeport: 0, targetport: 0, targetportname: dns-udp}',
  '    externaltraffictolocal: true',
  '    sessionaffinity: null',
  '    internaltraffictolocal: false',
  '    healthchecknodeport: 32100',
  '  endpoints:',
  '  - podname: oven-0',
  '    endpoint:',
  '      hostname: ""',
  '      ips: {v4: [10.244.1.11]}',
  '      portoverrides: [{name: http, port: 8080}, {name: dns, port: 5353}]',
  '    conditions: {ready: true}',
  '    topology: {node: edge-1, zone: north}',
  '    hints: null',
  '  - endpoint:',
  '      ips: {v4: [10.244.2.22]}',
  '      portoverrides: [{name: http, port: 8080}, {name: dns, port: 5353}]',
  '    topology: {node: edge-2, zone: south}',
  '    hints: {zones: [south]}',
  '- service:',
  '    name: flour',
  '    type: ClusterIP',
  '    ips: {clusterips: {v4: [10.96.10.30]}}',
  '    ports: [{protocol: 1, port: 7000, targetport: 7000}]',
  '  endpoints: []',
);

/** Address, local or not, and scopes of each endpoint that a node sees. */
function seenFrom(node: string): Record<string, string[]> {
  const view = nodeView(stateOf(BAKERY), node);
  return Object.fromEntries(
    [...view.values()].map(({ key, endpoints }) => [
      key,
      [...endpoints].map(([name, { ips, local, scopes }]) =>
        [
          name === 'oven-0' ? name : 'anonymous',
          ips?.v4.join(),
          local ? 'local' : 'remote',
          scopes?.internal ? 'internal' : '',
          scopes?.external ? 'external' : '',
        ]
          .join(' ')
          .trim(),
      ),
    ]),
  );
}

t.test('V22 (kept): the view of edge-2', async (t) => {
  t.strictSame(warningsOf(BAKERY), []);
  const { 'bakery/oven': oven = [], ...rest } = seenFrom('edge-2');
  t.strictSame(oven.sort(), [
    'anonymous 10.244.2.22 local internal external',
    'oven-0 10.244.1.11 remote internal',
  ]);
  t.strictSame(rest, { 'default/flour': [] });
});

t.test(
  'V22 (different): from edge-1 the hint of one endpoint alone takes nothing away',
  async (t) => {
    t.strictSame(seenFrom('edge-1')['bakery/oven']?.sort(), [
      'anonymous 10.244.2.22 remote internal',
      'oven-0 10.244.1.11 local internal external',
    ]);
  },
);
