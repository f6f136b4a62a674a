/** What only sockets of the test can show. */
import t from 'tap';
import { rejected } from '../../../src/proxysocket/events.ts';
import { proxyHeader } from '../../../src/proxysocket/tcp/proxy-protocol.ts';
import type { ServicePortSpec } from '../../../src/proxysocket/spec.ts';
import { FakeHost, listenSpec } from '../../support/fake-host.ts';
import { collect } from '../../support/sockets.ts';
import { endpointAt } from '../../support/tcp-peers.ts';

async function hostOf(options: Partial<ServicePortSpec> = {}): Promise<FakeHost> {
  const host = new FakeHost({ kind: 'linux' });
  const endpoints = [endpointAt(1), endpointAt(2)];
  await host.set({ ...listenSpec('a', ['10.0.0.1:80']), endpoints, ...options });
  return host;
}

t.test('an endpoint is not blamed for a lack of descriptors or source ports', async (t) => {
  const events = collect(t, rejected);
  const host = await hostOf();
  const { resets } = host.connect('10.0.0.1', 'EMFILE');
  t.match(host.counters('a'), {
    connectErrors: { limit: 2 },
    rejectedLimit: 1,
    rejectedConnectFailed: 0,
  });
  t.match(events, [{ reason: 'limit' }]);
  t.equal(resets, 1);
  const { failing } = await host.engine.inspect({ maxConnections: 0, failing: true });
  t.equal(failing?.size, 0);
});

t.test('the client’s address is read only when needed, and once', async (t) => {
  const host = await hostOf();
  t.equal(host.connect('10.0.0.1').asked, 0);
  const affinity = { kind: 'clientIP', timeoutSeconds: 9 } as const;
  t.equal((await hostOf({ affinity })).connect('10.0.0.1').asked, 1);
});

t.test('no endpoint is connected to from an address that a load balancer has named', async (t) => {
  const transparent = [{ address: '10.0.0.1', port: 80 }];
  const listen = [{ address: '127.0.0.1', port: 0, traffic: 'internal', transparent }] as const;
  const endpoints = [endpointAt(1, '203.0.113.10')];
  const named = { address: '198.51.100.7', port: 1 };
  for (const [proxyProtocolFrom, expected] of [
    [['192.0.2.0/24'], undefined],
    [[], '192.0.2.1'],
  ] as const) {
    const host = new FakeHost({ kind: 'linux' });
    const spec = { ...listenSpec('a', listen), endpoints, keepsClients: 'all' } as const;
    await host.set(listenSpec('all', [{ ...listen[0], transparent: [] }]), {
      ...spec,
      proxyProtocolFrom,
    });
    const client = host.connect('10.0.0.1', 'EMFILE', proxyHeader(1, named, named));
    t.equal(client.sources[0], expected);
  }
});
