import t from 'tap';
import { PortMapping } from '../../src/api/generated/localv1/api.ts';
import { canonicalAddress } from '../../src/proxier/portals.ts';
import { resolvePort } from '../../src/proxier/endpoints.ts';
import { endpoint } from '../support/messages.ts';

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
