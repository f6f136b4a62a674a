import t from 'tap';
import { mergePodEndpoints } from '../../src/store/merge-endpoints.ts';
import { endpoint } from '../support/messages.ts';

const http = { name: 'http', port: 80 };

t.test('addresses and ports of two slices are joined', async (t) => {
  const merged = mergePodEndpoints(
    endpoint('10.0.0.2', { portOverrides: [http] }),
    endpoint('10.0.0.1', {
      ips: { v6: ['fd00::1'] },
      portOverrides: [http, { name: 'x', port: 1 }],
    }),
  );
  t.strictSame(merged?.ips, { v4: ['10.0.0.2'], v6: ['fd00::1'] });
  t.strictSame(merged?.portOverrides, [http, { name: 'x', port: 1 }]);
});

t.test('neither of the two is changed', async (t) => {
  const a = endpoint('10.0.0.2', { portOverrides: [http] });
  const b = endpoint('10.0.0.1', { hostname: 'h', portOverrides: [{ name: 'x', port: 1 }] });
  const before = structuredClone([a, b]);
  t.equal(mergePodEndpoints(a, b)?.hostname, 'h');
  t.strictSame([a, b], before);
});

t.test('what one endpoint cannot say is not merged', async (t) => {
  const plain = endpoint('10.0.0.1', { portOverrides: [http] });
  const others = {
    'another port under the same name': { portOverrides: [{ name: 'http', port: 81 }] },
    'on another node': { local: true },
    'not for external traffic': { scopes: { internal: true, external: false } },
    'not for internal traffic': { scopes: { internal: false, external: true } },
  };
  for (const [name, more] of Object.entries(others)) {
    t.equal(mergePodEndpoints(plain, endpoint('10.0.0.2', more)), undefined, name);
  }
});
