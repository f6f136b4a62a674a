import t from 'tap';
import { newCounters } from '../../src/proxysocket/counters.ts';
import { LoopGuard } from '../../src/proxysocket/core/loop-guard.ts';
import type { ServicePort } from '../../src/proxysocket/core/service-port.ts';
import { SharedServicePorts } from '../../src/proxysocket/core/shared-service-ports.ts';
import type { BalancerEndpoint } from '../../src/roundrobin/endpoint.ts';
import { Subject } from '../support/balancer.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { endpointAt } from '../support/tcp-peers.ts';

function setUp() {
  const clock = new FakeClock();
  const host = new Set(['10.0.0.5', 'fd00::5', '127.3.2.1', '::1']);
  const guard = new LoopGuard(clock, new SharedServicePorts(() => undefined), (address) =>
    host.has(address),
  );
  const service = (name: string, ...endpoints: readonly (readonly [string, number])[]) => {
    const { balancer } = new Subject().with(
      ...endpoints.map(([address, port]) => endpointAt(port, address)),
    );
    return { name, protocol: 'TCP', balancer, counters: newCounters() } satisfies ServicePort;
  };
  /** What the guard says about each endpoint of a service. */
  const verdicts = (owner: ServicePort): boolean[] =>
    owner.balancer
      .endpoints()
      .map((endpoint: BalancerEndpoint) => guard.loopsBack(owner, endpoint));
  return { guard, service, verdicts };
}

t.test('a listener on every address is a loop on those of the host, of its family', (t) => {
  const { guard, service, verdicts } = setUp();
  const at = ['10.0.0.5', '127.3.2.1', '0.0.0.0', '10.0.0.6', 'fd00::5', '::1'] as const;
  const web = service('web', ...at.map((address) => [address, 30_080] as const));
  guard.setListener('0.0.0.0', 30_080, web);
  t.same(verdicts(web), [true, true, true, false, false, false]);
  guard.setListener('::', 30_080, web);
  t.same(verdicts(web), [true, true, true, false, true, true]);
  const node = service('node', ...at.slice(3, 5).map((address) => [address, 30_081] as const));
  guard.setPortals(node, [{ address: undefined, port: 30_081 }]);
  t.same(verdicts(node), [false, true], 'a node port is on those of both families');
  t.end();
});

t.test('an address that has a listener of its own is not that of the one on every address', (t) => {
  const { guard, service, verdicts } = setUp();
  const [web, other] = [service('web', ['10.0.0.5', 80]), service('other', ['10.9.9.9', 1])];
  guard.setListener('0.0.0.0', 80, web);
  guard.setListener('10.0.0.5', 80, other);
  t.same(verdicts(web), [false]);
  t.end();
});

t.test('a service may be the endpoint of another, unless that loops back', (t) => {
  const { guard, service, verdicts } = setUp();
  const front = service('front', ['10.0.0.2', 80], ['10.8.8.8', 80]);
  const middle = service('middle', ['10.9.9.9', 80], ['10.0.0.3', 80]);
  const back = service('back', ['10.9.9.9', 80]);
  guard.setListener('10.0.0.1', 80, front);
  guard.setListener('10.0.0.2', 80, middle);
  guard.setListener('10.0.0.3', 80, back);
  t.same([front, middle, back].map(verdicts), [[false, false], [false, false], [false]]);

  back.balancer.update([endpointAt(80, '10.0.0.1')]);
  guard.changed();
  t.same([front, middle, back].map(verdicts), [[true, false], [false, true], [true]]);

  back.balancer.update([endpointAt(80, '10.0.0.3')]);
  guard.changed();
  t.same([front, middle, back].map(verdicts), [[false, false], [false, false], [true]], 'its own');
  t.end();
});

t.test('a loop through a service with very many endpoints is found', (t) => {
  const { guard, service, verdicts } = setUp();
  const front = service('front', ['10.0.0.2', 80], ['10.0.0.3', 80]);
  const back = service('back');
  const many = Array.from({ length: 1000 }, (_, n) => endpointAt(n + 1, '10.9.9.9'));
  back.balancer.update([endpointAt(80, '10.0.0.1'), ...many]);
  guard.setListener('10.0.0.1', 80, front);
  guard.setListener('10.0.0.2', 80, back);
  guard.setListener('10.0.0.3', 80, back);
  let walks = 0;
  const endpoints = back.balancer.endpoints.bind(back.balancer);
  back.balancer.endpoints = () => {
    walks += 1;
    return endpoints();
  };
  t.same(verdicts(front), [true, true]);
  const other = service('other', ['10.0.0.2', 80]);
  t.same(verdicts(other), [false]);
  t.equal(walks, 1, 'once for all that reach it');
  guard.changed();
  t.same(verdicts(other), [false]);
  t.equal(walks, 2);
  t.end();
});
