import t from 'tap';
import {
  type DeepPartial,
  type Endpoint,
  Protocol,
  type Service,
} from '../../src/api/generated/localv1/api.ts';
import { type Desired, desiredServicePorts } from '../../src/proxier/wanted.ts';
import { endpoint, clusterEntry, entry, ports } from '../support/messages.ts';

const ips = { clusterIPs: { v4: ['10.0.0.1'] } };

/** A service port and its endpoints, as texts. */
function endpointsOf(desired: Desired): Record<string, string[]> {
  return Object.fromEntries(
    desired.ports.map(({ spec }) => [
      spec.name,
      spec.endpoints.map(({ address, port }) => `${address} ${port}`),
    ]),
  );
}

const told = (desired: Desired): string[] =>
  desired.problems.map(({ code, message }) => `${code} ${message}`);

function of(
  more: DeepPartial<Service>,
  endpoints: readonly string[] | Record<string, Endpoint> = [],
) {
  return desiredServicePorts(entry('d/web', { ips, ...more }, endpoints));
}

t.test(
  'a service port is named after its service, and after its port if that has a name',
  async (t) => {
    t.same(
      of({ ports: ports('http TCP 80 8080', 'dns UDP 53 53') }).ports.map(({ spec }) => [
        spec.name,
        spec.protocol,
      ]),
      [
        ['d/web:http', 'TCP'],
        ['d/web:dns', 'UDP'],
      ],
    );
    t.same(
      of({ ports: ports('- TCP 80 8080') }).ports.map(({ spec }) => spec.name),
      ['d/web'],
    );
  },
);

t.test('with node ports only, the addresses of services are not even looked at', async (t) => {
  const service = {
    ips: { clusterIPs: { v4: ['10.0.0.1'] }, externalIPs: { v4: ['nonsense'] } },
    ports: ports('http TCP 80 8080@30080', 'dns UDP 53 53'),
  };
  const { ports: served, problems } = desiredServicePorts(entry('d/web', service), undefined, true);
  t.same(problems, []);
  t.match(served, [{ spec: { name: 'd/web:http' } }]);
  t.same(
    served.flatMap(({ portals }) => portals.map(({ kind, port }) => `${kind} ${port}`)),
    ['nodePort 30080'],
  );
});

t.test('the families of a service and of its endpoints are merged', async (t) => {
  const desired = of(
    { ips: { clusterIPs: { v4: ['10.0.0.1'], v6: ['fd00::1'] } }, ports: ports('- TCP 80 8080') },
    { pod: endpoint('10.1.0.1', { ips: { v4: ['10.1.0.1'], v6: ['FD01::0001'] } }) },
  );
  t.same(
    desired.ports[0]?.portals.map(({ address, port, traffic }) => `${address} ${port} ${traffic}`),
    ['10.0.0.1 80 internal', 'fd00::1 80 internal'],
  );
  t.same(endpointsOf(desired), { 'd/web': ['10.1.0.1 8080', 'fd01::1 8080'] });
});

t.test('services that are not proxied are left out silently', async (t) => {
  const quiet: [string, DeepPartial<Service>][] = [
    ['ExternalName', { type: 'ExternalName', ports: ports('- TCP 80 80') }],
    [
      'headless',
      { ips: { headless: true, externalIPs: { v4: ['10.0.0.5'] } }, ports: ports('- TCP 80 80') },
    ],
    ['no ports', { ports: [] }],
    ['no addresses', { ips: {}, ports: ports('- TCP 80 80') }],
    ['cluster IP ""', { ips: { clusterIPs: { v4: [''] } }, ports: ports('- TCP 80 80') }],
    ['cluster IP None', { ips: { clusterIPs: { v4: ['None'] } }, ports: ports('- TCP 80 80') }],
  ];
  for (const [name, more] of quiet) t.same(of(more), { ports: [], problems: [] }, name);
});

t.test('a service without addresses but with a node port has that', async (t) => {
  const desired = of({ ips: {}, ports: ports('- TCP 80 8080@30080') });
  t.same(
    desired.ports[0]?.portals.map(({ kind, address, port }) => [kind, address, port]),
    [['nodePort', undefined, 30_080]],
  );
});

t.test('B11 (kept): endpoints without an address, or with port 0, are left out', async (t) => {
  const desired = of(
    { ports: ports('p TCP 80 x', 'q TCP 81 y') },
    {
      good: endpoint('10.1.0.1', { portOverrides: [{ name: 'p', port: 1 }] }),
      zero: endpoint('10.1.0.2', { portOverrides: [{ name: 'p', port: 0 }] }),
      bare: endpoint('', { ips: {}, portOverrides: [{ name: 'p', port: 3 }] }),
    },
  );
  t.same(endpointsOf(desired), { 'd/web:p': ['10.1.0.1 1'], 'd/web:q': [] });
});

t.test('several slices: each endpoint serves the ports that it lists', async (t) => {
  const desired = of(
    { ports: ports('p TCP 80 8080', 'q TCP 81 8081') },
    {
      a: endpoint('10.1.0.1', {
        portOverrides: [
          { name: 'p', port: 1 },
          { name: 'q', port: 2 },
        ],
      }),
      b: endpoint('10.1.0.2', { portOverrides: [{ name: 'p', port: 3 }] }),
    },
  );
  t.same(endpointsOf(desired), {
    'd/web:p': ['10.1.0.1 1', '10.1.0.2 3'],
    'd/web:q': ['10.1.0.1 2'],
  });
  t.same(told(desired), [], 'that is as it should be');
});

t.test('endpoints that cannot be used are reported once for each reason, by name', async (t) => {
  const desired = of(
    { ports: ports('http TCP 80 web') },
    {
      'pod-a': endpoint('10.1.0.1', { portOverrides: [{ name: 'http', port: 70_000 }] }),
      'pod-b': endpoint('nope', { portOverrides: [{ name: 'http', port: 80 }] }),
      'pod-c': endpoint('10.1.0.3'),
      'pod-d': endpoint('10.1.0.4'),
      'pod-e': endpoint('10.1.0.5', { portOverrides: [{ name: 'http', port: 80 }] }),
    },
  );
  t.same(endpointsOf(desired), { 'd/web:http': ['10.1.0.5 80'] });
  t.same(told(desired), [
    'KPNG_SERVICE_INVALID d/web:http: endpoints without a valid IP address are left out, such as pod-b ("nope")',
    'KPNG_SERVICE_INVALID d/web:http: endpoints whose port is not 1 to 65535 are left out, such as pod-a (70000)',
    'KPNG_SERVICE_INVALID d/web:http: endpoints without a port named http or web are left out, such as pod-c',
  ]);
  t.ok(desired.problems.every(({ servicePort }) => servicePort === 'd/web:http'));
});

t.test('a service port that no endpoint lists is reported', async (t) => {
  const listed = endpoint('10.1.0.1', { portOverrides: [{ name: 'other', port: 1 }] });
  t.match(told(of({ ports: ports('http TCP 80 web') }, { pod: listed })), [
    /without a port named http or web.*such as pod/,
  ]);
  t.match(told(of({ ports: ports('- TCP 80 0') }, ['10.1.0.1'])), [
    /without a port or target port.*such as pod-10/,
  ]);
  t.same(
    told(of({ ports: ports('http TCP 80 web') })),
    [],
    'but not when there is no endpoint at all',
  );
});

t.test('traffic policies: endpoints list the traffic they may serve', async (t) => {
  const desired = of(
    { ports: ports('- TCP 80 8080') },
    {
      a: endpoint('10.1.0.1', { scopes: { internal: true, external: false } }),
      b: endpoint('10.1.0.2', { scopes: { internal: false, external: false } }),
      c: { ...endpoint('10.1.0.3'), scopes: undefined },
    },
  );
  t.same(desired.ports[0]?.spec.endpoints, [
    { address: '10.1.0.1', port: 8080, internal: true, external: false },
    { address: '10.1.0.2', port: 8080, internal: false, external: false },
    { address: '10.1.0.3', port: 8080, internal: true, external: true },
  ]);
});

t.test('one address that is listed twice is one endpoint', async (t) => {
  const desired = of(
    { ports: ports('- TCP 80 8080') },
    {
      a: endpoint('10.1.0.1', { scopes: { internal: true, external: false } }),
      b: endpoint('10.1.0.1', { scopes: { internal: false, external: true } }),
    },
  );
  t.same(desired.ports[0]?.spec.endpoints, [
    { address: '10.1.0.1', port: 8080, internal: true, external: true },
  ]);
});

t.test('SCTP is reported, once for each service port, and the rest works', async (t) => {
  const desired = of({ ports: ports('a TCP 80 80', 'b SCTP 81 81', 'c SCTP 82 82') });
  t.same(
    desired.ports.map(({ spec }) => spec.name),
    ['d/web:a'],
  );
  t.same(
    desired.problems.map(({ code, servicePort }) => `${code} ${servicePort}`),
    ['KPNG_UNSUPPORTED_PROTOCOL d/web:b', 'KPNG_UNSUPPORTED_PROTOCOL d/web:c'],
  );
  t.match(told(of({ ports: [{ port: 80, protocol: 0 }] })), [
    /^KPNG_UNSUPPORTED_PROTOCOL d\/web: protocol 0/,
  ]);
});

t.test('wrong numbers and names', async (t) => {
  const desired = of({
    ports: ports('a TCP 0 80', 'b TCP 70000 80', 'c TCP 80 80@70000', 'c TCP 81 81', 'd TCP 82 82'),
  });
  t.same(
    desired.ports.map(({ spec, portals }) => `${spec.name} ${portals.length}`),
    ['d/web:c 1', 'd/web:d 1'],
  );
  t.same(told(desired), [
    'KPNG_SERVICE_INVALID d/web:a: the port 0 is not a port from 1 to 65535',
    'KPNG_SERVICE_INVALID d/web:b: the port 70000 is not a port from 1 to 65535',
    'KPNG_SERVICE_INVALID d/web:c: the node port 70000 is not a port from 1 to 65535',
    'KPNG_SERVICE_INVALID d/web:c: the service has two ports of this name; only the first one is proxied',
  ]);
});

t.test(
  'a colon in the name of a service is refused, because it would read as a port',
  async (t) => {
    const desired = desiredServicePorts(clusterEntry('d/web:http', '10.0.0.1', '- TCP 80 80'));
    t.same(desired.ports, []);
    t.match(told(desired), [/^KPNG_SERVICE_INVALID "d\/web:http"/]);
  },
);

t.test('session affinity, with three hours when nothing else is said', async (t) => {
  const affinity = (more: DeepPartial<Service>) =>
    of({ ports: ports('- TCP 80 80'), ...more }).ports[0]?.spec.affinity;
  const clientIP = (timeoutSeconds: number) =>
    affinity({ sessionAffinity: { $case: 'clientIP', value: { timeoutSeconds } } });
  t.same(affinity({}), { kind: 'none' });
  t.same(clientIP(10), { kind: 'clientIP', timeoutSeconds: 10 });
  t.same(clientIP(0), { kind: 'clientIP', timeoutSeconds: 10_800 });
  t.same(clientIP(-5), { kind: 'clientIP', timeoutSeconds: 10_800 });
});

t.test('the idle time of UDP sessions by annotation', async (t) => {
  const idle = (text: string) =>
    of({
      ports: ports('a UDP 53 53', 'b TCP 53 53'),
      annotations: { 'kpng-userspace.io/udp-idle-timeout': text },
    });
  t.same(
    idle('1m30s').ports.map(({ spec }) => spec.udpIdleTimeoutMs),
    [90_000, undefined],
  );
  for (const bad of ['soon', '0', '30', '1000000h']) {
    t.same(
      idle(bad).ports.map(({ spec }) => spec.udpIdleTimeoutMs),
      [undefined, undefined],
    );
    t.match(
      told(idle(bad)),
      [/^KPNG_SERVICE_INVALID d\/web: the annotation kpng-userspace\.io\/udp-idle-timeout/],
      bad,
    );
  }
});

t.test('the PROXY protocol by annotation, for TCP', async (t) => {
  const spec = (annotations: Record<string, string>) =>
    of({ ports: ports('a UDP 53 53', 'b TCP 53 53'), annotations });
  const asked = spec({
    'kpng-userspace.io/proxy-protocol': 'v2',
    'kpng-userspace.io/proxy-protocol-from': '10.0.0.0/8, 2001:db8::/32',
  });
  t.match(asked.ports[1]?.spec, {
    proxyProtocol: 2,
    proxyProtocolFrom: ['10.0.0.0/8', '2001:db8::/32'],
  });
  t.notMatch(asked.ports[0]?.spec, { proxyProtocol: Number });
  t.strictSame(asked.problems, []);
  const bad = spec({
    'kpng-userspace.io/proxy-protocol': '3',
    'kpng-userspace.io/proxy-protocol-from': '10.0.0.0/8, nowhere',
  });
  t.match(bad.ports[1]?.spec, { proxyProtocolFrom: ['10.0.0.0/8'] }, 'the good part counts');
  t.match(told(bad), [
    /^KPNG_SERVICE_INVALID d\/web: the annotation \S+proxy-protocol "3" is not v1 or v2$/,
    /^KPNG_SERVICE_INVALID d\/web: the annotation \S+proxy-protocol-from "10.0.0.0\/8, nowhere" is not a list/,
  ]);
});

/** `10.x.y.z`, all different. */
function address(n: number): string {
  return `10.${n >> 16}.${(n >> 8) & 255}.${n & 255}`;
}

function range<T>(count: number, make: (n: number) => T): T[] {
  return Array.from({ length: count }, (_, n) => make(n));
}

const tcp = (n: number) => ({
  name: `p${n}`,
  protocol: Protocol.TCP,
  port: n + 1,
  targetPort: 8080,
});

function read(more: DeepPartial<Service>, endpoints: readonly string[] = []) {
  const { ports, problems } = desiredServicePorts(
    entry('d/web', { ports: [tcp(79)], ...more }, endpoints),
  );
  return { ports, problems: problems.map(({ code, message }) => `${code} ${message}`) };
}

t.test('of too many source ranges the first ones count', async (t) => {
  const sourceRanges = range(50_000, (n) => `${address(n * 2)}/32`);
  const { ports, problems } = read({
    ips: { clusterIPs: { v4: ['10.96.0.1'] }, loadBalancerIPs: { v4: ['192.0.2.1'] } },
    ipFilters: [{ sourceRanges: sourceRanges.slice(0, 500) }, { sourceRanges }],
  });
  const [cluster, external] = ports[0]?.portals ?? [];
  t.strictSame(cluster?.sourceRanges, []);
  t.equal(external?.sourceRanges.length, 1500, '2,000, of which 500 are there twice');
  t.strictSame(problems, [
    'KPNG_SERVICE_TOO_LARGE d/web: 50500 source ranges exceed the limit of 2000 for one service; clients in the further ones are refused',
  ]);
});

t.test('a filter beyond the limit still closes its addresses', async (t) => {
  const { ports } = read({
    ips: { externalIPs: { v4: ['192.0.2.1', '192.0.2.2'] } },
    ipFilters: [
      { sourceRanges: range(2000, (n) => `${address(n)}/32`) },
      { targetIPs: { v4: ['192.0.2.2'] }, sourceRanges: ['198.51.100.0/24'] },
    ],
  });
  t.strictSame(
    ports[0]?.portals.map((portal) => portal.address),
    ['192.0.2.1'],
  );
});

t.test('of too many addresses or ports the first ones are proxied', async (t) => {
  const addresses = read({ ips: { externalIPs: { v4: range(5000, address) } } });
  t.equal(addresses.ports[0]?.portals.length, 1000);
  t.match(addresses.problems, [/^KPNG_SERVICE_TOO_LARGE d\/web: 5000 addresses exceed/]);
  const ips = { clusterIPs: { v4: ['10.96.0.1'] } };
  const many = read({ ips, ports: range(6000, tcp) });
  t.equal(many.ports.length, 5000);
  t.match(many.problems, [/^KPNG_SERVICE_TOO_LARGE d\/web: 6000 ports exceed/]);
});

t.test('so are addresses times ports, and endpoints times ports, up to the limit', async (t) => {
  const ips = { externalIPs: { v4: range(900, (n) => address(n + 1)) } };
  const square = read({ ips, ports: range(900, tcp) });
  t.equal(square.ports.length, 11);
  t.match(square.problems, [
    /d\/web: 810000 combinations of address, port and source range exceed/,
  ]);
  const behind = read(
    { ips: { clusterIPs: { v4: ['10.96.0.1'] } }, ports: range(1000, tcp) },
    range(300, (n) => address(n + 1)),
  );
  t.equal(behind.ports.length, 666);
  t.match(behind.problems, [/300000 combinations of endpoint and port exceed/]);
});

t.test('many problems of one service take a few lines', async (t) => {
  const { problems } = read({
    ips: { clusterIPs: { v4: ['10.96.0.1'] } },
    ports: range(1000, (n) => ({ ...tcp(n), protocol: Protocol.SCTP })),
  });
  t.equal(problems.length, 21);
  t.equal(problems.at(-1), 'KPNG_SERVICE_INVALID d/web: 980 more problems are not reported');
  const [long = ''] = read({ ips: { clusterIPs: { v4: ['x'.repeat(100_000)] } } }).problems;
  t.ok(long.length < 200, 'and none is long');
});

t.test('every port finds its own in long lists of endpoints', async (t) => {
  const portOverrides = range(100, (n) => ({ name: `p${n}`, port: 9000 + n }));
  const { ports } = desiredServicePorts(
    entry(
      'd/web',
      { ips: { clusterIPs: { v4: ['10.96.0.1'] } }, ports: range(100, tcp) },
      { pod: endpoint('10.1.0.1', { portOverrides }) },
    ),
  );
  t.strictSame(
    ports.map(({ spec }) => spec.endpoints[0]?.port),
    range(100, (n) => 9000 + n),
  );
});
