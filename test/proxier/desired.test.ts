import t from 'tap';
import {
  type DeepPartial,
  type Endpoint,
  Protocol,
  type Service,
  PortMapping,
} from '../../src/api/generated/localv1/api.ts';
import { type Desired, desiredServicePorts } from '../../src/proxier/wanted.ts';
import { endpoint, clusterEntry, entry, ports } from '../support/messages.ts';
import { resolvePort } from '../../src/proxier/endpoints.ts';

const ips = { clusterIPs: { v4: ['10.0.0.1'] } };

type Endpoints = readonly string[] | Record<string, Endpoint>;

function of(more: DeepPartial<Service>, endpoints: Endpoints = []) {
  return desiredServicePorts(entry('d/web', { ips, ...more }, endpoints));
}

/** An endpoint that lists its ports: `http 80`. */
function listing(address: string, ...ports: string[]): Endpoint {
  const portOverrides = ports.map((text) => {
    const [name = '', port] = text.split(' ');
    return { name, port: Number(port) };
  });
  return endpoint(address, { portOverrides });
}

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

const namesOf = ({ ports }: Desired) => ports.map(({ spec }) => `${spec.name} ${spec.protocol}`);

const portalsOf = ({ ports }: Desired) =>
  ports.flatMap(({ portals }) =>
    portals.map(({ kind, address, port, traffic }) => `${kind} ${address} ${port} ${traffic}`),
  );

t.test('a service port is named after its service and the name of its port', async (t) => {
  const named = of({ ports: ports('http TCP 80 8080', 'dns UDP 53 53') });
  t.same(namesOf(named), ['d/web:http TCP', 'd/web:dns UDP']);
  t.same(namesOf(of({ ports: ports('- TCP 80 8080') })), ['d/web TCP']);
  const colon = desiredServicePorts(clusterEntry('d/web:http', '10.0.0.1', '- TCP 80 80'));
  t.same(colon.ports, []);
  t.match(told(colon), [/^KPNG_SERVICE_INVALID "d\/web:http"/], 'it would read as a port');
});

t.test('node ports alone: without addresses, or if only node ports are served', async (t) => {
  const rows = ports('http TCP 80 8080@30080', 'dns UDP 53 53');
  const invalid = { ips: { ...ips, externalIPs: { v4: ['nonsense'] } }, ports: rows };
  const only = desiredServicePorts(entry('d/web', invalid), true);
  for (const desired of [only, of({ ips: {}, ports: rows })]) {
    t.same(told(desired), [], 'addresses are not even looked at');
    t.same(namesOf(desired), ['d/web:http TCP']);
    t.same(portalsOf(desired), ['nodePort undefined 30080 external']);
  }
});

t.test('services that are not proxied are left out silently', async (t) => {
  const rows = ports('- TCP 80 80');
  const quiet: Record<string, DeepPartial<Service>> = {
    ExternalName: { type: 'ExternalName', ports: rows },
    headless: { ips: { headless: true, externalIPs: { v4: ['10.0.0.5'] } }, ports: rows },
    'no ports': { ports: [] },
    'no addresses': { ips: {}, ports: rows },
    'cluster IP ""': { ips: { clusterIPs: { v4: [''] } }, ports: rows },
    'cluster IP None': { ips: { clusterIPs: { v4: ['None'] } }, ports: rows },
  };
  for (const [name, more] of Object.entries(quiet)) {
    t.same(of(more), { ports: [], problems: [] }, name);
  }
});

t.test('unusable endpoints are left out, and reported once for each reason by name', async (t) => {
  const rows = { ports: ports('http TCP 80 web') };
  const desired = of(rows, {
    'pod-a': listing('10.1.0.1', 'http 70000'),
    'pod-b': listing('nope', 'http 80'),
    'pod-c': endpoint('10.1.0.3'),
    'pod-d': listing('10.1.0.4', 'other 1'),
    'pod-e': listing('10.1.0.5', 'http 80'),
    'pod-f': listing('10.1.0.6', 'http 0'),
    'pod-g': { ...listing('', 'http 3'), ips: undefined },
  });
  t.same(endpointsOf(desired), { 'd/web:http': ['10.1.0.5 80'] }, 'B11 (kept)');
  t.same(told(desired), [
    'KPNG_SERVICE_INVALID d/web:http: endpoints without a valid IP address are left out, such as pod-b ("nope")',
    'KPNG_SERVICE_INVALID d/web:http: endpoints whose port is not 1 to 65535 are left out, such as pod-a (70000)',
    'KPNG_SERVICE_INVALID d/web:http: endpoints without a port named http or web are left out, such as pod-c',
  ]);
  t.ok(desired.problems.every(({ servicePort }) => servicePort === 'd/web:http'));
  t.match(told(of({ ports: ports('- TCP 80 0') }, ['10.1.0.1'])), [
    /without a port or target port.*such as pod-10/,
  ]);
  const web = (endpoints: Endpoints) => told(of(rows, endpoints));
  t.same(web([]), [], 'but not without any endpoint');
  const ofOther = { a: listing('10.1.0.1', 'other 1'), b: listing('10.1.0.2', 'other 1') };
  t.match(web(ofOther), [/named http or web .* such as a$/]);
  t.same(web({ ...ofOther, c: listing('10.1.0.3', 'http 1') }), [], 'nor if another serves it');
});

t.test('traffic policies: endpoints list the traffic they may serve', async (t) => {
  const [none, one, other, both] = [0, 1, 2, 3].map((bits) => {
    return { internal: (bits & 1) > 0, external: (bits & 2) > 0 };
  });
  const rows = { ports: ports('- TCP 80 8080') };
  const desired = of(rows, {
    a: endpoint('10.1.0.1', { scopes: one }),
    b: endpoint('10.1.0.2', { scopes: none }),
    c: { ...endpoint('10.1.0.3'), scopes: undefined },
    d: endpoint('10.1.0.4', { scopes: one }),
    e: endpoint('10.1.0.4', { scopes: other }),
    f: endpoint('10.1.0.5', { scopes: other }),
    g: endpoint('10.1.0.5', { scopes: one }),
    h: listing('10.1.0.5', ' 9090'),
  });
  t.match(desired.ports[0]?.spec.endpoints, [one, none, both, both, both, both]);
  // One address and port that is listed twice is one endpoint.
  const once = [...[1, 2, 3, 4, 5].map((n) => `10.1.0.${n} 8080`), '10.1.0.5 9090'];
  t.same(endpointsOf(desired), { 'd/web': once });
});

t.test('invalid ports are left out and reported, and the rest works', async (t) => {
  const desired = of({
    ports: [
      ...ports('a TCP 0 80', 'b TCP 70000 80', 'c TCP 80 80@70000', 'c TCP 81 81', 'd TCP 82 82'),
      ...ports('e SCTP 81 81', 'f SCTP 82 82'),
      { name: 'g', port: 80, protocol: 0 },
    ],
  });
  const found = desired.ports.map(({ spec, portals }) => `${spec.name} ${portals.length}`);
  t.same(found, ['d/web:c 1', 'd/web:d 1']);
  t.match(told(desired), [
    'KPNG_SERVICE_INVALID d/web:a: the port 0 is not a port from 1 to 65535',
    'KPNG_SERVICE_INVALID d/web:b: the port 70000 is not a port from 1 to 65535',
    'KPNG_SERVICE_INVALID d/web:c: the node port 70000 is not a port from 1 to 65535',
    'KPNG_SERVICE_INVALID d/web:c: the service has two ports of this name; only the first one is proxied',
    /^KPNG_UNSUPPORTED_PROTOCOL d\/web:e/,
    /^KPNG_UNSUPPORTED_PROTOCOL d\/web:f/,
    /^KPNG_UNSUPPORTED_PROTOCOL d\/web:g: protocol 0/,
  ]);
});

t.test('session affinity, with three hours when nothing else is said', async (t) => {
  const affinity = (sessionAffinity?: Service['sessionAffinity']) =>
    of({ ports: ports('- TCP 80 80'), sessionAffinity }).ports[0]?.spec.affinity;
  t.same(affinity(), { kind: 'none' });
  for (const given of [10, 0, -5]) {
    const timeoutSeconds = given > 0 ? given : 10_800;
    const value = { timeoutSeconds: given };
    t.same(affinity({ $case: 'clientIP', value }), { kind: 'clientIP', timeoutSeconds });
  }
});

/** The UDP and TCP port of a service with annotations, and its problems. */
function annotated(given: Record<string, string>) {
  const annotations = Object.fromEntries(
    Object.entries(given).map(([name, value]) => [`kpng-userspace.io/${name}`, value]),
  );
  const desired = of({ ports: ports('a UDP 53 53', 'b TCP 53 53'), annotations });
  const [udp, tcp] = desired.ports.map(({ spec }) => spec);
  return { udp, tcp, problems: told(desired) };
}

t.test('annotations: the idle time of UDP sessions, the PROXY protocol for TCP', async (t) => {
  const good = annotated({
    'udp-idle-timeout': '1m30s',
    'proxy-protocol': 'v2',
    'proxy-protocol-from': '10.0.0.0/8, 2001:db8::/32',
  });
  const proxyProtocolFrom = ['10.0.0.0/8', '2001:db8::/32'];
  t.match(good, {
    udp: { udpIdleTimeoutMs: 90_000, proxyProtocol: undefined },
    tcp: { udpIdleTimeoutMs: undefined, proxyProtocol: 2, proxyProtocolFrom },
  });
  t.strictSame(good.problems, []);
  for (const bad of ['soon', '0', '30', '1000000h']) {
    const { udp, problems } = annotated({ 'udp-idle-timeout': bad });
    t.equal(udp?.udpIdleTimeoutMs, undefined);
    const message = /^KPNG_SERVICE_INVALID d\/web: the annotation \S+\/udp-idle-timeout/;
    t.match(problems, [message], bad);
  }
  const bad = annotated({ 'proxy-protocol': '3', 'proxy-protocol-from': '10.0.0.0/8, nowhere' });
  t.match(bad.tcp, { proxyProtocolFrom: ['10.0.0.0/8'] }, 'the good part counts');
  t.match(bad.problems, [
    /the annotation \S+proxy-protocol "3" is not v1 or v2$/,
    /the annotation \S+proxy-protocol-from "10.0.0.0\/8, nowhere" is not a list/,
  ]);
});

t.test('whose address endpoints see, by annotation with the policy Local', async (t) => {
  const name = 'kpng-userspace.io/client-address';
  for (const [value, externalTrafficToLocal, keepsClients, problems] of [
    [undefined, true, 'external', []],
    ['client', true, 'external', []],
    ['node', true, undefined, []],
    ['node', false, undefined, []],
    ['client', false, undefined, [/"client" is not possible without externalTrafficPolicy: Local/]],
    ['pod', true, 'external', [/"pod" is not client or node$/]],
    ['pod', false, undefined, [/"pod" is not client or node$/]],
  ] as const) {
    const annotations: Record<string, string> = value === undefined ? {} : { [name]: value };
    const desired = of({ ports: ports('- TCP 80 80'), annotations, externalTrafficToLocal });
    t.equal(desired.ports[0]?.spec.keepsClients, keepsClients);
    t.match(told(desired), problems, `${value} ${externalTrafficToLocal}`);
    t.equal(told(desired).length, problems.length);
  }
});

/** `10.x.y.z`, all different. */
function address(n: number): string {
  return `10.${n >> 16}.${(n >> 8) & 255}.${n & 255}`;
}

function range<T>(count: number, make: (n: number) => T): T[] {
  return Array.from({ length: count }, (_, n) => make(n));
}

function tcp(n: number) {
  return { name: `p${n}`, protocol: Protocol.TCP, port: n + 1, targetPort: 8080 };
}

t.test('of too many source ranges the first ones count', async (t) => {
  const sourceRanges = range(50_000, (n) => `${address(n * 2)}/32`);
  const desired = of({
    ips: { ...ips, loadBalancerIPs: { v4: ['192.0.2.1'] } },
    ports: [tcp(79)],
    ipFilters: [{ sourceRanges: sourceRanges.slice(0, 500) }, { sourceRanges }],
  });
  const [cluster, external] = desired.ports[0]?.portals ?? [];
  t.strictSame(cluster?.sourceRanges, []);
  t.equal(external?.sourceRanges.length, 1500, '2,000, of which 500 are there twice');
  t.strictSame(told(desired), [
    'KPNG_SERVICE_TOO_LARGE d/web: 50500 source ranges exceed the limit of 2000 for one service; clients in the further ones are refused',
  ]);
  const closed = of({
    ips: { externalIPs: { v4: ['192.0.2.1', '192.0.2.2'] } },
    ports: [tcp(79)],
    ipFilters: [
      { sourceRanges: sourceRanges.slice(0, 2000) },
      { targetIPs: { v4: ['192.0.2.2'] }, sourceRanges: ['198.51.100.0/24'] },
    ],
  });
  t.strictSame(portalsOf(closed), ['externalIP 192.0.2.1 80 external'], 'the other one is closed');
});

t.test('the size of a service is limited: of too much, the first part is proxied', async (t) => {
  const external = (count: number) => ({
    externalIPs: { v4: range(count, (n) => address(n + 1)) },
  });
  const addresses = of({ ips: external(5000), ports: [tcp(79)] });
  t.equal(addresses.ports[0]?.portals.length, 1000);
  t.match(told(addresses), [/^KPNG_SERVICE_TOO_LARGE d\/web: 5000 addresses exceed/]);
  const pods = range(300, (n) => address(n + 1));
  for (const [desired, count, problem] of [
    [of({ ports: range(6000, tcp) }), 5000, '6000 ports'],
    [
      of({ ips: external(900), ports: range(900, tcp) }),
      11,
      '810000 combinations of address, port and source range',
    ],
    [of({ ports: range(1000, tcp) }, pods), 666, '300000 combinations of endpoint and port'],
  ] as const) {
    t.equal(desired.ports.length, count);
    t.match(told(desired), [`KPNG_SERVICE_TOO_LARGE d/web: ${problem} exceed`]);
  }
});

t.test('an endpoint may have more addresses than a function call can take', async (t) => {
  const v4 = range(150_000, address);
  const { ports: all } = of({ ports: [tcp(79)] }, { pod: endpoint('', { ips: { v4, v6: [] } }) });
  t.equal(all[0]?.spec.endpoints.length, v4.length);
});

t.test('many problems of one service take a few lines', async (t) => {
  const sctp = range(1000, (n) => ({ ...tcp(n), protocol: Protocol.SCTP }));
  const problems = told(of({ ports: sctp }));
  t.equal(problems.length, 21);
  t.equal(problems.at(-1), 'KPNG_SERVICE_INVALID d/web: 980 more problems are not reported');
  const [long = ''] = told(of({ ips: { clusterIPs: { v4: ['x'.repeat(100_000)] } }, ports: sctp }));
  t.ok(long.length < 200, 'and none is long');
});

t.test('V16 (kept, different): the port of an endpoint', async (t) => {
  const many = Array.from({ length: 10 }, (_, n) => `p${n} ${9000 + n}`);
  const several = ['metrics 1', 'metrics 1011', 'http2 888', ...many];
  // kpng finds nothing where it says `different`.
  const cases: [Partial<PortMapping>, overrides: readonly string[], number | undefined][] = [
    [{ name: 'http', targetPortName: 't-http', targetPort: 8080 }, several, undefined],
    [{ name: 'http2', targetPort: 800 }, several, 888],
    [{ name: 'metrics', targetPortName: 'http2' }, several, 1011],
    [{ targetPortName: 'metrics', targetPort: 8080 }, several, 1011],
    [{ targetPortName: 't-metrics', targetPort: 8080 }, several, undefined],
    [{ targetPort: 8080 }, several, 8080],
    [{ name: 'metrics' }, ['metrics 1', 'metrics 2'], 2],
    [{}, several, undefined],
    [{ targetPortName: 'web' }, [' 8081'], 8081], // different
    [{ targetPort: 80 }, [' 8081'], 8081], // different
    [{ name: 'http', targetPort: 8080 }, [], 8080], // different
    [{ name: 'http', targetPortName: 'web' }, [], undefined],
    [{ name: 'http', targetPortName: 'web' }, ['web 8081'], 8081], // different
    // That is the name of another port of the service.
    [{ name: 'http', targetPortName: 'sibling' }, ['sibling 8081'], undefined],
  ];
  for (const [port, overrides, expected] of cases) {
    const portOverrides = overrides.map((text) => {
      const [name = '', number] = text.split(' ');
      return { name, port: Number(number) };
    });
    const mapping = PortMapping.fromPartial(port);
    const names = new Set([mapping.name, 'sibling']);
    const found = resolvePort(mapping, endpoint('10.1.0.1', { portOverrides }), names);
    t.equal(found, expected, JSON.stringify([port, overrides]));
  }
});
