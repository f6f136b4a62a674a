import t from 'tap';
import { PortMapping } from '../../src/api/generated/localv1/api.ts';
import { resolvePort } from '../../src/proxier/endpoints.ts';
import { endpoint } from '../support/messages.ts';

/** Resolves with the overrides given, as `name port` each. */
function resolve(
  port: Partial<PortMapping>,
  overrides: readonly string[],
  siblings: string[] = [],
) {
  const portOverrides = overrides.map((text) => {
    const [name = '', number] = text.split(' ');
    return { name, port: Number(number) };
  });
  const mapping = PortMapping.fromPartial(port);
  return resolvePort(
    mapping,
    endpoint('10.1.0.1', { portOverrides }),
    new Set([mapping.name, ...siblings]),
  );
}

t.test('V16 (kept): the rules of kpng', async (t) => {
  const overrides = ['metrics 1011', 'http2 888'];
  const cases: [Partial<PortMapping>, number | undefined][] = [
    [{ name: 'http', targetPortName: 't-http', targetPort: 8080 }, undefined],
    [{ name: 'http2', targetPort: 800 }, 888],
    [{ name: 'metrics', targetPortName: 'http2' }, 1011],
    [{ targetPortName: 'metrics', targetPort: 8080 }, 1011],
    [{ targetPortName: 't-metrics', targetPort: 8080 }, undefined],
    [{ targetPort: 8080 }, 8080],
    [{}, undefined],
  ];
  for (const [port, expected] of cases) {
    t.equal(resolve(port, overrides), expected, JSON.stringify(port));
  }
});

t.test('V16 (different): an unnamed service port with a named target port', async (t) => {
  t.equal(resolve({ targetPortName: 'web' }, [' 8081']), 8081, 'kpng finds nothing');
  t.equal(resolve({ targetPort: 80 }, [' 8081']), 8081, 'what the endpoint says counts more');
});

t.test('V16 (different): a named service port of an endpoint that lists nothing', async (t) => {
  t.equal(resolve({ name: 'http', targetPort: 8080 }, []), 8080, 'kpng finds nothing');
  t.equal(resolve({ name: 'http', targetPortName: 'web' }, []), undefined);
});

t.test('V16 (different): a named service port found by the name of its target', async (t) => {
  t.equal(resolve({ name: 'http', targetPortName: 'web' }, ['web 8081']), 8081);
  t.equal(
    resolve({ name: 'http', targetPortName: 'web' }, ['web 8081'], ['web']),
    undefined,
    'but not if that is the name of another port of the service',
  );
});
