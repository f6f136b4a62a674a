import t from 'tap';
import { addressKeys, AddressIndex, routeKey } from '../../../src/proxysocket/core/addresses.ts';
import {
  sharedChange,
  SharedServicePorts,
} from '../../../src/proxysocket/core/shared-service-ports.ts';
import type {
  EndpointSpec,
  PortalAddress,
  ServicePortSpec,
} from '../../../src/proxysocket/spec.ts';
import type { AcceptOwner } from '../../../src/proxysocket/tcp/transport.ts';
import { FakeHost, listenSpec } from '../../support/fake-host.ts';
import { endpointAt } from '../../support/tcp-peers.ts';
import { LoopGuard } from '../../../src/proxysocket/core/loop-guard.ts';
import { FakeClock } from '../../support/fake-clock.ts';

function specOf(name: string, transparent: readonly PortalAddress[]): ServicePortSpec {
  return listenSpec(name, [{ address: '127.0.0.1', port: 0, traffic: 'internal', transparent }]);
}

const place = (address: string | undefined, port = 80): PortalAddress => ({ address, port });

t.test('a service port is made for the first client of one of its addresses', async (t) => {
  const made: string[] = [];
  const ports = new SharedServicePorts<{ name: string }>(new AddressIndex(), ({ name, keys }) => {
    made.push(name);
    ports.route(name, [[keys, { name }]]);
  });
  const set = (name: string, ...places: PortalAddress[]) =>
    ports.set(sharedChange(specOf(name, places), undefined));
  const at = (address: string | undefined, port = 80) => ports.at(routeKey(4, address, port))?.name;
  set('d/web', place('10.0.0.1'), place(undefined, 30_080));
  set('d/dns', place('2001:db8::1', 53));
  t.same(made, []);
  const endpoints = [{ address: '10.1.0.1', port: 80, internal: true, external: true }];
  t.ok(ports.setEndpoints('d/web', endpoints));
  t.same(ports.get('d/web')?.endpoints, endpoints);
  t.equal(at(undefined, 30_080), 'd/web', 'a node port');
  t.equal(at('10.0.0.1'), 'd/web');
  t.same(made, ['d/web'], 'once');
  t.notOk(ports.setEndpoints('d/web', []), 'from then on the engine has it');
  t.equal(at('10.0.0.1', 81), undefined);
  t.equal(at('2001:db8::1', 53), 'd/dns');
});

t.test('an address that two service ports have for a while', async (t) => {
  const addresses = new AddressIndex();
  const set = (name: string, ...keys: string[]) => addresses.set(name, keys);
  set('d/old', '10.0.0.1');
  set('d/new', '10.0.0.1');
  set('d/old');
  t.equal(addresses.at('10.0.0.1'), 'd/new', 'it moved');
  // For a worker that replaces another one, the service port that is about to go may come last.
  set('d/old', '10.0.0.1');
  set('d/old', '10.0.0.1');
  t.equal(addresses.at('10.0.0.1'), 'd/old');
  set('d/old');
  t.equal(addresses.at('10.0.0.1'), 'd/new', 'the other one has it');
  set('d/new');
  t.equal(addresses.at('10.0.0.1'), undefined, 'no service port has it');
});

function spec(name: string, places: readonly string[], endpoints: readonly string[] = []) {
  const shared = places.map((address) => place(address));
  const endpointSpecs = endpoints.map((address) => endpointAt(80, address));
  return { ...specOf(name, shared), endpoints: endpointSpecs };
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

t.test('clients that cannot be accepted are counted without any so far', async (t) => {
  const host = await engineWith('10.1.0.1', '10.1.0.1');
  const socket = host.tcp.owner as AcceptOwner;
  socket.acceptFailed();
  t.match(host.counters('d/0'), { connections: 0, rejectedLimit: 1 });
  const { endpoints } = await host.inspect({ servicePorts: ['d/1'], maxConnections: 0 });
  t.match(endpoints, [{ servicePort: 'd/1', endpoint: '10.1.0.1:80', active: 0, failing: false }]);
  host.connect('10.0.0.1');
  await host.apply([{ kind: 'remove', name: 'd/1' }]);
  socket.acceptFailed();
  t.match(host.counters('d/0'), { rejectedLimit: 2 }, 'for one that is still there');
});

t.test('a loop through a service port without clients is found at once', async (t) => {
  const host = await engineWith('10.0.0.1', '10.0.0.0');
  const client = host.connect('10.0.0.0');
  t.match(host.counters('d/0'), { connections: 1, connectErrors: { loop: 1 } });
  t.same(client.sources, [], 'it was not dialed');
});

t.test('a service port without listeners takes no address of another one', async (t) => {
  const host = await engineWith('10.1.0.1');
  const portals = [{ address: '10.0.0.0', port: 80 }];
  await host.set({ ...listenSpec('d/late', []), portals });
  host.connect('10.0.0.0');
  t.match(host.counters('d/0'), { connections: 1 });
});

function loopScene() {
  const clock = new FakeClock();
  const host = new Set(['10.0.0.5', 'fd00::5', '127.3.2.1', '::1']);
  const all = new Map<string, EndpointSpec[]>();
  /** Service ports whose endpoints were looked at. */
  const walks: string[] = [];
  const portals = new AddressIndex();
  const guard = new LoopGuard(
    clock,
    portals,
    (name) => {
      walks.push(name);
      return all.get(name) ?? [];
    },
    (address) => host.has(address),
  );
  const service = (name: string, ...endpoints: readonly (readonly [string, number])[]) => {
    all.set(
      name,
      endpoints.map(([address, port]) => endpointAt(port, address)),
    );
    return name;
  };
  /** What the guard says about each endpoint of a service. */
  const verdicts = (name: string): boolean[] =>
    (all.get(name) ?? []).map((endpoint) => guard.loopsBack(name, endpoint));
  return { guard, portals, service, verdicts, walks };
}

t.test('a listener on every address is a loop on those of the host, of its family', async (t) => {
  const { guard, portals, service, verdicts } = loopScene();
  const at = ['10.0.0.5', '127.3.2.1', '0.0.0.0', '10.0.0.6', 'fd00::5', '::1'] as const;
  const web = service('web', ...at.map((address) => [address, 30_080] as const));
  guard.setListener('0.0.0.0', 30_080, web);
  t.same(verdicts(web), [true, true, true, false, false, false]);
  guard.setListener('::', 30_080, web);
  t.same(verdicts(web), [true, true, true, false, true, true]);
  const node = service('node', ...at.slice(3, 5).map((address) => [address, 30_081] as const));
  const nodePort = { address: undefined, port: 30_081 };
  portals.set(node, addressKeys({ ...specOf(node, []), portals: [nodePort] }));
  t.same(verdicts(node), [false, true], 'a node port is on those of both families');
  guard.setListener('10.0.0.5', 30_080, node);
  t.same(verdicts(web).slice(0, 2), [false, true], 'one that has a listener of its own');
});

t.test('a service may be the endpoint of another, unless that loops back', async (t) => {
  const { guard, service, verdicts } = loopScene();
  const front = service('front', ['10.0.0.2', 80], ['10.8.8.8', 80]);
  const middle = service('middle', ['10.9.9.9', 80], ['10.0.0.3', 80]);
  const back = service('back', ['10.9.9.9', 80]);
  guard.setListener('10.0.0.1', 80, front);
  guard.setListener('10.0.0.2', 80, middle);
  guard.setListener('10.0.0.3', 80, back);
  t.same([front, middle, back].map(verdicts), [[false, false], [false, false], [false]]);

  service('back', ['10.0.0.1', 80]);
  guard.changed();
  t.same([front, middle, back].map(verdicts), [[true, false], [false, true], [true]]);

  service('back', ['10.0.0.3', 80]);
  guard.changed();
  t.same([front, middle, back].map(verdicts), [[false, false], [false, false], [true]], 'its own');
});

t.test('the endpoints of a service are looked at once for all that reach it', async (t) => {
  const { guard, service, verdicts, walks } = loopScene();
  const front = service('front', ['10.0.0.2', 80], ['10.0.0.3', 80]);
  const back = service('back', ['10.0.0.1', 80], ['10.9.9.9', 80]);
  guard.setListener('10.0.0.1', 80, front);
  guard.setListener('10.0.0.2', 80, back);
  guard.setListener('10.0.0.3', 80, back);
  t.same(verdicts(front), [true, true]);
  t.same(walks, [back]);
  const other = service('other', ['10.0.0.2', 80]);
  t.same(verdicts(other), [false]);
  t.same(walks, [back, front]);
  guard.changed();
  t.same(verdicts(other), [false]);
  t.same(walks, [back, front, back, front]);
});
