import t from 'tap';
import { FakeHost, listenSpec } from '../../support/fake-host.ts';
import { endpointAt } from '../../support/tcp-peers.ts';

const REFUSES = 3;
const TIMEOUT_MS = 100;

/** The ports of the endpoints that a client gets whose attempts all fail, most of them by a time-out. */
async function order(
  endpoints: number,
  attempts: number,
  refuses: readonly number[],
): Promise<number[]> {
  const host = new FakeHost();
  const all = Array.from({ length: endpoints }, (_, index) => endpointAt(index + 1));
  await host.engine.setLimits({ connectTimeoutsMs: Array(attempts).fill(TIMEOUT_MS) as number[] });
  await host.set({ ...listenSpec('a', ['10.0.0.1:80']), endpoints: all });
  const { dials } = host.connect('10.0.0.1', '');
  for (const { endpoint, owner } of dials) {
    if (refuses.includes(endpoint.port)) owner.dialFailed(new Error('refused'));
    else host.clock.advance(TIMEOUT_MS);
  }
  return dials.map(({ endpoint }) => endpoint.port);
}

function sorted(ports: readonly number[]): number[] {
  return [...ports].sort((one, other) => one - other);
}

t.test('the order in which endpoints are tried', async (t) => {
  const all = await order(4, 4, []);
  t.same(sorted(all), [1, 2, 3, 4], 'each attempt takes an untried one');

  const rounds = await order(3, 7, [REFUSES]);
  t.same(sorted(rounds.slice(0, 3)), [1, 2, 3], 'while there is one');
  t.same(sorted(rounds.slice(3, 5)), [1, 2], 'then those that timed out, but not one that refused');
  t.same(sorted(rounds.slice(5)), [1, 2], 'and again');

  t.equal((await order(3, 4, [1, 2, 3])).length, 3, 'none is left when all have refused');
  t.same(await order(1, 3, []), [1, 1, 1], 'a single one is tried in each attempt');
  t.same(await order(0, 4, []), []);
});
