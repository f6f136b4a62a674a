import t from 'tap';
import { PortMapping } from '../../src/api/generated/localv1/api.ts';
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
