/** Service ports whose clients arrive at a shared socket, before and at their first client. */
import t from 'tap';
import { endpointInvalid } from '../../src/proxysocket/events.ts';
import type { AcceptOwner } from '../../src/proxysocket/tcp/transport.ts';
import { FakeHost, listenSpec } from '../support/fake-host.ts';
import { collect } from '../support/sockets.ts';
import { endpointAt } from '../support/tcp-peers.ts';

function spec(name: string, places: readonly string[], endpoints: readonly string[] = []) {
  const transparent = places.map((address) => ({ address, port: 80 }));
  const listen = { address: '127.0.0.1', port: 0, traffic: 'internal', transparent } as const;
  return {
    ...listenSpec(name, [listen]),
    endpoints: endpoints.map((address) => endpointAt(80, address)),
  };
}

/** An engine with one shared socket and service ports `d/0`, `d/1` at 10.0.0.0:80, 10.0.0.1:80. */
async function setUp(...endpoints: string[]): Promise<FakeHost> {
  const host = new FakeHost({ kind: 'linux' });
  await host.set(
    spec('all', []),
    ...endpoints.map((address, index) => spec(`d/${index}`, [`10.0.0.${index}`], [address])),
  );
  return host;
}

t.test('invalid endpoints are reported when they are set, once', async (t) => {
  const invalid = collect(t, endpointInvalid);
  const host = await setUp('example.org');
  t.match(invalid, [{ servicePort: 'd/0', endpoint: 'example.org:80' }]);
  const endpoints = [endpointAt(80, 'example.net')];
  await host.engine.apply([{ kind: 'endpoints', name: 'd/0', endpoints }]);
  t.match(invalid[1], { servicePort: 'd/0', endpoint: 'example.net:80' });
  host.connect('10.0.0.0');
  t.equal(invalid.length, 2);
});

t.test('clients that cannot be accepted are counted without any so far', async (t) => {
  const host = await setUp('10.1.0.1', '10.1.0.1');
  const socket = host.tcp.owner as AcceptOwner;
  socket.acceptFailed();
  t.match(host.counters('d/0'), { connections: 0, rejectedLimit: 1 });
  host.connect('10.0.0.1');
  await host.engine.apply([{ kind: 'remove', name: 'd/1' }]);
  socket.acceptFailed();
  t.match(host.counters('d/0'), { rejectedLimit: 2 }, 'for one that is still there');
});

t.test('a loop through a service port without clients is found at once', async (t) => {
  const host = await setUp('10.0.0.1', '10.0.0.0');
  const client = host.connect('10.0.0.0');
  t.match(host.counters('d/0'), { connections: 1, connectErrors: { loop: 1 } });
  t.same(client.sources, [], 'it was not dialed');
});
