import t from 'tap';
import {
  routeKey,
  sharedChange,
  SharedServicePorts,
} from '../../../src/proxysocket/core/shared-service-ports.ts';
import type { PortalAddress, ServicePortSpec } from '../../../src/proxysocket/spec.ts';
import { endpointInvalid } from '../../../src/proxysocket/events.ts';
import type { AcceptOwner } from '../../../src/proxysocket/tcp/transport.ts';
import { FakeHost, listenSpec } from '../../support/fake-host.ts';
import { collect } from '../../support/sockets.ts';
import { endpointAt } from '../../support/tcp-peers.ts';

function specOf(name: string, transparent: readonly PortalAddress[]): ServicePortSpec {
  const listen = [{ address: '127.0.0.1', port: 0, traffic: 'internal', transparent }] as const;
  return { name, protocol: 'TCP', listen, endpoints: [], affinity: { kind: 'none' } };
}

const place = (address: string | undefined, port = 80): PortalAddress => ({ address, port });

function setUp() {
  const made: string[] = [];
  const ports = new SharedServicePorts<{ name: string }>(({ name, keys }) => {
    made.push(name);
    ports.route(name, [[keys, { name }]]);
  });
  const set = (name: string, ...places: PortalAddress[]) =>
    ports.set(sharedChange(specOf(name, places), undefined));
  const at = (address: string | undefined, port = 80) => ports.at(routeKey(4, address, port))?.name;
  return { ports, made, set, at };
}

t.test('a service port is made for the first client of one of its addresses', (t) => {
  const { ports, made, set, at } = setUp();
  set('d/web', place('10.0.0.1'), place(undefined, 30_080));
  set('d/dns', place('2001:0db8:0:0::1', 53));
  t.same(made, []);
  const endpoints = [{ address: '10.1.0.1', port: 80, internal: true, external: true }];
  t.ok(ports.setEndpoints('d/web', () => endpoints));
  t.same(ports.get('d/web')?.endpoints, endpoints);
  t.equal(at(undefined, 30_080), 'd/web', 'a node port');
  t.equal(at('10.0.0.1'), 'd/web');
  t.same(made, ['d/web'], 'once');
  t.notOk(
    ports.setEndpoints('d/web', () => []),
    'from then on the engine has it',
  );
  t.equal(at('10.0.0.1', 81), undefined);
  t.equal(at('2001:db8::1', 53), 'd/dns', 'however the address is written');
  t.end();
});

t.test('an address moves from one service port to another, in either order', (t) => {
  const { set, at } = setUp();
  set('d/old', place('10.0.0.1'));
  set('d/new', place('10.0.0.1'));
  set('d/old');
  t.equal(at('10.0.0.1'), 'd/new');
  set('d/back', place('10.0.0.2'));
  set('d/back');
  t.equal(at('10.0.0.2'), undefined, 'no service port has it');
  t.end();
});

t.test('an address that two service ports have for a while', (t) => {
  for (const hasHadClients of [false, true]) {
    const { ports, set, at } = setUp();
    set('d/now', place('10.0.0.1'));
    if (hasHadClients) at('10.0.0.1');
    // For a worker that replaces another one, the service port that is about to go may come last.
    set('d/old', place('10.0.0.1'));
    set('d/old', place('10.0.0.1'));
    ports.remove('d/old');
    t.equal(at('10.0.0.1'), 'd/now', 'the other one has it');
  }
  t.end();
});

function spec(name: string, places: readonly string[], endpoints: readonly string[] = []) {
  const transparent = places.map((address) => ({ address, port: 80 }));
  const listen = { address: '127.0.0.1', port: 0, traffic: 'internal', transparent } as const;
  return {
    ...listenSpec(name, [listen]),
    endpoints: endpoints.map((address) => endpointAt(80, address)),
  };
}

/** An engine with one shared socket and service ports `d/0`, `d/1` at 10.0.0.0:80, 10.0.0.1:80. */
async function engineWith(...endpoints: string[]): Promise<FakeHost> {
  const host = new FakeHost({ kind: 'linux' });
  await host.set(
    spec('all', []),
    ...endpoints.map((address, index) => spec(`d/${index}`, [`10.0.0.${index}`], [address])),
  );
  return host;
}

t.test('invalid endpoints are reported when they are set, once', async (t) => {
  const invalid = collect(t, endpointInvalid);
  const host = await engineWith('example.org');
  t.match(invalid, [{ servicePort: 'd/0', endpoint: 'example.org:80' }]);
  const endpoints = [endpointAt(80, 'example.net')];
  await host.engine.apply([{ kind: 'endpoints', name: 'd/0', endpoints }]);
  t.match(invalid[1], { servicePort: 'd/0', endpoint: 'example.net:80' });
  host.connect('10.0.0.0');
  t.equal(invalid.length, 2);
});

t.test('clients that cannot be accepted are counted without any so far', async (t) => {
  const host = await engineWith('10.1.0.1', '10.1.0.1');
  const socket = host.tcp.owner as AcceptOwner;
  socket.acceptFailed();
  t.match(host.counters('d/0'), { connections: 0, rejectedLimit: 1 });
  const { endpoints } = await host.engine.inspect({ servicePorts: ['d/1'], maxConnections: 0 });
  t.match(endpoints, [{ servicePort: 'd/1', endpoint: '10.1.0.1:80', active: 0, failing: false }]);
  host.connect('10.0.0.1');
  await host.engine.apply([{ kind: 'remove', name: 'd/1' }]);
  socket.acceptFailed();
  t.match(host.counters('d/0'), { rejectedLimit: 2 }, 'for one that is still there');
});

t.test('a loop through a service port without clients is found at once', async (t) => {
  const host = await engineWith('10.0.0.1', '10.0.0.0');
  const client = host.connect('10.0.0.0');
  t.match(host.counters('d/0'), { connections: 1, connectErrors: { loop: 1 } });
  t.same(client.sources, [], 'it was not dialed');
});
