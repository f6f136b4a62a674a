import * as fc from 'fast-check';
import t from 'tap';
import { type Endpoint, PortMapping } from '../../src/api/generated/localv1/api.ts';
import { canonicalAddress } from '../../src/proxier/portals.ts';
import {
  endpointsOf,
  KnownSpecs,
  type ResolvedEndpoints,
  resolvePort,
} from '../../src/proxier/endpoints.ts';
import type { ServiceEntry } from '../../src/store/local-view.ts';
import { endpoint, entry, ports } from '../support/messages.ts';
import { holds } from '../support/property.ts';

t.test('V16 (kept, different): the port of an endpoint', async (t) => {
  const several = ['metrics 1011', 'http2 888'];
  // kpng finds nothing where it says `different`.
  const cases: [Partial<PortMapping>, overrides: readonly string[], number | undefined][] = [
    [{ name: 'http', targetPortName: 't-http', targetPort: 8080 }, several, undefined],
    [{ name: 'http2', targetPort: 800 }, several, 888],
    [{ name: 'metrics', targetPortName: 'http2' }, several, 1011],
    [{ targetPortName: 'metrics', targetPort: 8080 }, several, 1011],
    [{ targetPortName: 't-metrics', targetPort: 8080 }, several, undefined],
    [{ targetPort: 8080 }, several, 8080],
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

const PORT = ports('http TCP 80 8080')[0];
const NAMES = new Set(['http']);

function of(endpoints: Map<string, Endpoint>, known?: KnownSpecs): ResolvedEndpoints {
  const whole: ServiceEntry = { ...entry('d/web', { ports: [PORT ?? {}] }), endpoints };
  const [port] = whole.service.ports;
  if (port === undefined) throw new Error('the service has a port');
  return endpointsOf('d/web:http', port, whole, NAMES, known);
}

/** Good and bad ones, some of them with the addresses of others. */
const someEndpoint: fc.Arbitrary<Endpoint> = fc
  .record({
    v4: fc.uniqueArray(fc.constantFrom('10.1.0.1', '10.1.0.2', '10.1.0.3', 'x'), { maxLength: 2 }),
    v6: fc.constantFrom<string[]>([], ['fd00::1']),
    portOverrides: fc.constantFrom<Endpoint['portOverrides']>(
      [],
      [{ name: 'http', port: 9000 }],
      [{ name: 'other', port: 1 }],
      [{ name: 'http', port: 0 }],
    ),
    scopes: fc.constantFrom(
      undefined,
      { internal: true, external: false },
      { internal: false, external: true },
    ),
  })
  .map(({ v4, v6, portOverrides, scopes }) => {
    return { hostname: '', local: false, ips: { v4, v6 }, portOverrides, scopes };
  });

const steps = fc.array(
  fc.record({ key: fc.nat(9), value: fc.option(someEndpoint, { nil: undefined }) }),
  { maxLength: 30 },
);

t.test('reusing the previous result gives the same as starting from scratch', async (t) => {
  holds(
    t,
    fc.property(steps, (list) => {
      let endpoints = new Map<string, Endpoint>();
      const known = new KnownSpecs();
      for (const { key, value } of list) {
        const next = new Map(endpoints);
        if (value === undefined) next.delete(`pod-${key}`);
        else next.set(`pod-${key}`, value);
        endpoints = new Map([...next].sort(([a], [b]) => (a < b ? -1 : 1)));
        const helped = of(endpoints, known);
        const alone = of(endpoints);
        const text = ({ endpoints, problems }: ResolvedEndpoints) =>
          JSON.stringify([endpoints, problems.map(({ message }) => message)]);
        if (text(helped) !== text(alone)) throw new Error(`${text(helped)} is not ${text(alone)}`);
      }
    }),
  );
});

t.test('of endpoints that stay the result has the same objects as before', async (t) => {
  const pods = Array.from({ length: 3000 }, (_, n): [string, Endpoint] => [
    `pod-${String(n).padStart(4, '0')}`,
    endpoint(`10.2.${n >> 8}.${n & 255}`),
  ]);
  const known = new KnownSpecs();
  const before = new Set(of(new Map(pods), known).endpoints);
  t.equal(before.size, 3000);
  const news = (result: ResolvedEndpoints) =>
    result.endpoints.filter((spec) => !before.has(spec)).map(({ address }) => address);

  const added = of(new Map(pods.toSpliced(1500, 0, ['pod-1499x', endpoint('10.9.0.1')])), known);
  t.equal(added.endpoints.length, 3001);
  t.strictSame(news(added), ['10.9.0.1']);

  const fewer = of(new Map(pods.toSpliced(10, 5)), known);
  t.equal(fewer.endpoints.length, 2995);
  t.strictSame(news(fewer), []);

  const moved = of(new Map(pods.toSpliced(2999, 1, ['pod-2999', endpoint('10.9.0.2')])), known);
  t.equal(moved.endpoints.length, 3000);
  t.strictSame(news(moved), ['10.9.0.2']);
});

t.test('an endpoint with more addresses than a function call can take as arguments', (t) => {
  const v4 = Array.from(
    { length: 150_000 },
    (_, n) => `10.${n >> 16}.${(n >> 8) & 255}.${n & 255}`,
  );
  const { endpoints } = of(new Map([['a', { ...endpoint('10.0.0.1'), ips: { v4, v6: [] } }]]));
  t.equal(endpoints.length, v4.length);
  t.end();
});

t.test('one way to write each address', async (t) => {
  for (const [text, expected] of [
    ['FD00:0:0::0001', 'fd00::1'],
    ['::ffff:10.0.0.1', '10.0.0.1'],
  ] as const) {
    t.equal(canonicalAddress(text), expected);
  }
  for (const text of ['127.0.0.1', '::1', '223.255.255.255', '240.0.0.1', 'ff::1']) {
    t.equal(canonicalAddress(text), text);
  }
  const unusable = ['0.0.0.0', '::', '0:0::0', '::ffff:0.0.0.0'];
  const multicast = ['224.0.0.1', '239.255.255.255', '255.255.255.255', '::ffff:224.0.0.1'];
  multicast.push('ff02::1', 'FF0E:0::1');
  const invalid = ['fe80::1%eth0', '10.0.0', '10.0.0.256', '010.0.0.1', 'nope', '', '[::1]'];
  for (const text of [...unusable, ...multicast, ...invalid]) {
    t.equal(canonicalAddress(text), undefined, text);
  }
});
