import t from 'tap';
import { EndpointPicker } from '../../../src/proxysocket/tcp/attempts.ts';
import { RoundRobinBalancer } from '../../../src/roundrobin/balancer.ts';
import type { PickRequest } from '../../../src/roundrobin/types.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { endpointAt } from '../../support/tcp-peers.ts';

const REFUSES = 3;

/** The ports of the endpoints that a client gets whose attempts all fail, most of them by a time-out. */
function order(endpoints: number, attempts: number, refuses: readonly number[]): number[] {
  const balancer = new RoundRobinBalancer({
    clock: new FakeClock(),
    random: () => 0,
    affinity: { kind: 'none' },
    maxAffinityClients: 1,
  });
  balancer.update(Array.from({ length: endpoints }, (_, index) => endpointAt(index + 1)));
  const picker = new EndpointPicker(Array.from({ length: attempts }));
  const request: PickRequest = {
    client: '10.0.0.9',
    traffic: 'internal',
    family: 4,
    get tried() {
      return picker.tried;
    },
  };
  const ports: number[] = [];
  for (let pick = picker.next(balancer, request); pick !== undefined;) {
    const { endpoint } = pick;
    ports.push(endpoint.port);
    picker.failed(endpoint, !refuses.includes(endpoint.port));
    pick = picker.next(balancer, request);
  }
  return ports;
}

function sorted(ports: readonly number[]): number[] {
  return [...ports].sort((one, other) => one - other);
}

t.test('the order in which endpoints are tried', (t) => {
  const all = order(4, 4, []);
  t.same(sorted(all), [1, 2, 3, 4], 'each attempt takes an untried one');

  const rounds = order(3, 7, [REFUSES]);
  t.same(sorted(rounds.slice(0, 3)), [1, 2, 3], 'while there is one');
  t.same(sorted(rounds.slice(3, 5)), [1, 2], 'then those that timed out, but not one that refused');
  t.same(sorted(rounds.slice(5)), [1, 2], 'and again');

  t.equal(order(3, 4, [1, 2, 3]).length, 3, 'none is left when all have refused');
  t.same(order(1, 3, []), [1, 1, 1], 'a single one is tried in each attempt');
  t.same(order(0, 4, []), []);
  t.end();
});
