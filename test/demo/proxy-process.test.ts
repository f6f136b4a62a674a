import t from 'tap';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { get } from '../../examples/support/http.ts';
import { fetchMetrics } from '../../examples/support/metrics.ts';
import { startProxy } from '../../examples/support/proxy-process.ts';
import { writeState } from '../../examples/support/state-file.ts';

t.test(
  'the program is started, is ready, reports health and metrics, and ends in order',
  async (t) => {
    const input = join(t.testdir({}), 'state.yaml');
    writeState(input, []);
    const proxy = await startProxy({ input });
    t.teardown(() => proxy.stop());
    t.equal((await get(proxy.healthUrl)).status, 200);
    t.ok((await fetchMetrics(proxy.metricsUrl)).size > 0);
    t.equal(await proxy.stop(), 'ended with code 0', proxy.log());
    t.equal(await proxy.stop(), 'ended with code 0', 'stopping twice changes nothing');
    t.equal(await proxy.ended, 'ended with code 0');
  },
);

t.test('a program that ends at once is reported with its log', async (t) => {
  const input = join(t.testdir({}), 'state.yaml');
  writeState(input, []);
  await t.rejects(startProxy({ input, args: ['--no-such-flag=1'] }), {
    message: /not ready \(it ended with code 2\); its log ends with:\n.*no-such-flag/s,
  });
});

t.test('a program that never becomes ready is ended and reported', async (t) => {
  const input = join(t.testdir({}), 'state.yaml');
  writeFileSync(input, 'services: {');
  await t.rejects(startProxy({ input, within: 3000 }), {
    message: /the proxy is not ready \(it (ended with code 0|was ended by SIG\w+)\)/,
  });
});
