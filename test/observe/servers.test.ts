import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import t, { type Test } from 'tap';
import { Health } from '../../src/observe/health.ts';
import { createMetrics } from '../../src/observe/metrics.ts';
import { startServers } from '../../src/observe/servers.ts';
import type { HostPort } from '../../src/util/host-port.ts';
import { captureLog, type CapturedLog } from '../support/captured-log.ts';
import { FakeClock } from '../support/fake-clock.ts';

import { parseMetrics } from '../support/metrics-page.ts';
import { until } from '../support/until.ts';
import { freePort } from '../support/sockets.ts';

const LOOPBACK: HostPort = { host: '127.0.0.1', port: 0 };

async function start(
  t: Test,
  addresses: { metricsAddress?: HostPort; healthAddress?: HostPort },
  count = Object.keys(addresses).length,
) {
  const captured = await captureLog();
  const health = new Health();
  const metrics = createMetrics({ version: '0' });
  const servers = startServers({
    metricsAddress: undefined,
    healthAddress: undefined,
    ...addresses,
    health,
    metrics,
    log: captured.log,
    clock: new FakeClock(),
  });
  t.teardown(() => {
    metrics.close();
    return servers.close();
  });
  await until(() => urls(captured).length === count);
  return { health, servers, urls: urls(captured), captured };
}

function urls({ lines }: CapturedLog): string[] {
  return lines().flatMap(({ url }) => (typeof url === 'string' ? [url] : []));
}

t.test('health answers tell the truth, from the start', async (t) => {
  const { health, urls } = await start(t, { healthAddress: LOOPBACK });
  const [base = ''] = urls;
  const status = async (path: string) => (await fetch(base + path)).status;
  t.same(await Promise.all(['/healthz', '/livez', '/readyz'].map(status)), [503, 200, 503]);
  health.synced();
  t.same(await Promise.all(['/healthz', '/livez', '/readyz'].map(status)), [200, 200, 200]);
  const response = await fetch(`${base}/healthz`);
  t.equal(response.headers.get('content-type'), 'application/json');
  t.match(await response.json(), { nodeEligible: true, lastUpdated: String, currentTime: String });
  t.equal(await status('/metrics'), 404, 'metrics are not for everybody');
});

t.test('metrics, proxy mode and health on the metrics address', async (t) => {
  const { urls } = await start(t, { metricsAddress: LOOPBACK });
  const [base = ''] = urls;
  t.equal(await (await fetch(`${base}/proxyMode`)).text(), 'userspace');
  await fetch(`${base}/healthz`);
  const response = await fetch(`${base}/metrics`);
  t.match(response.headers.get('content-type'), /^text\/plain; version=0\.0\.4/);
  const page = parseMetrics(await response.text());
  t.equal(page.value('kubeproxy_proxy_healthz_total', { code: '503' }), 1);
});

t.test('both servers, each told in the log', async (t) => {
  const both = { metricsAddress: LOOPBACK, healthAddress: LOOPBACK };
  const { captured, urls } = await start(t, both);
  t.equal(new Set(urls).size, 2, 'port 0 is another port each time');
  t.same(captured.messages().sort(), ['Serving health', 'Serving metrics']);
});

t.test('one address for both is one server with everything', async (t) => {
  const address = { host: '127.0.0.1', port: await freePort() };
  const { urls } = await start(t, { metricsAddress: address, healthAddress: address }, 1);
  const [base = ''] = urls;
  for (const path of ['/metrics', '/livez', '/proxyMode', '/']) {
    t.equal((await fetch(base + path)).status, 200, path);
  }
});

t.test('switched off: nothing is served and nothing is said', async (t) => {
  const { captured } = await start(t, {});
  t.same(captured.messages(), []);
});

t.test('an address that is taken is a warning, and the rest goes on', async (t) => {
  const blocker = createServer().listen(0, '127.0.0.1');
  t.teardown(() => blocker.close());
  await once(blocker, 'listening');
  const { port } = blocker.address() as AddressInfo;
  const taken = { host: '127.0.0.1', port };
  const { captured, urls } = await start(t, { metricsAddress: taken, healthAddress: LOOPBACK }, 1);
  await until(() => captured.lines().length === 2);
  t.match(
    captured.lines().find(({ level }) => level === 'warn'),
    {
      msg: 'Serving metrics failed; retrying',
      address: `127.0.0.1:${port}`,
      code: 'KPNG_LISTEN_ADDRESS_IN_USE',
      // Elsewhere the system does not tell who it is.
      err:
        process.platform === 'linux'
          ? `cannot listen on 127.0.0.1:${port}: this process (${process.pid}) listens there`
          : /EADDRINUSE/,
      retryInMs: 1000,
    },
  );
  t.equal((await fetch(`${urls[0]}/livez`)).status, 200);
});
