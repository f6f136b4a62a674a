import t from 'tap';
import { Protocol, type DeepPartial, type Service } from '../../src/api/generated/localv1/api.ts';
import { desiredServicePorts } from '../../src/proxier/wanted.ts';
import { endpoint } from '../support/messages.ts';
import { entry } from '../support/views.ts';

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

t.test('a filter behind the limit still closes its addresses', async (t) => {
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

t.test('so is what fits of addresses times ports, and of endpoints times ports', async (t) => {
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

t.test('many problems of one service are a few lines', async (t) => {
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
