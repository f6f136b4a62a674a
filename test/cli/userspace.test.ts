/** The whole program at its main job: state file in, connections through, and everything that watches. */
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { connect, createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { hasLinuxEngine } from '../runner/linux-engine.ts';
import { adminRig, startCli, stateText, type Cli } from '../support/cli.ts';
import { startKpngServer } from '../support/kpng-server.ts';
import { endpoint, reset, service, setEndpoint, setService, sync } from '../support/messages.ts';
import { parseMetrics, type MetricsPage } from '../support/metrics-page.ts';
import { freePort } from '../support/sockets.ts';
import { echoServer, namedServer, request } from '../support/tcp-peers.ts';

const SERVERS = ['--metrics-bind-address=127.0.0.1:0', '--healthz-bind-address=127.0.0.1:0'];

async function url(cli: Cli, what: 'metrics' | 'health'): Promise<string> {
  return String((await cli.line(`Serving ${what}`))['url']);
}

async function scrape(cli: Cli): Promise<MetricsPage> {
  const response = await fetch(`${await url(cli, 'metrics')}/metrics`);
  return parseMetrics(await response.text());
}

/** The program in front of an echo server, serving. */
async function serving(t: Test, ...flags: readonly string[]) {
  const backend = (await echoServer(t)).port;
  const rig = await adminRig(t, [{ name: 'echo', endpoints: [backend] }], flags);
  return { ...rig, port: rig.ports['echo'] ?? 0, backend };
}

t.test('a state file is proxied; log, metrics and health report it', async (t) => {
  const { cli, path, port, backend } = await serving(t, '-v=4', '--engine=auto', ...SERVERS);
  t.equal((await fetch(`${await url(cli, 'health')}/healthz`)).status, 200);

  t.equal(await request(t, port, 'hello there'), 'hello there');

  const relay = await cli.line('Creating proxy between remote and local addresses');
  t.match(relay, {
    v: 4,
    servicePortName: 'default/echo:tcp',
    endpoint: `127.0.0.1:${backend}`,
    inLocalAddress: `127.0.0.1:${port}`,
    outRemoteAddress: `127.0.0.1:${backend}`,
  });
  const client = relay['inRemoteAddress'];
  const of = { servicePortName: 'default/echo:tcp' };
  await cli.line('Accepted TCP connection from remote', { ...of, remoteAddress: client });
  await cli.line('NextEndpoint for service', { ...of, address: client, endpoints: 1 });
  await cli.line('Mapped service to endpoint', { ...of, endpoint: `127.0.0.1:${backend}` });
  for (const direction of ['from backend', 'to backend']) {
    await cli.line('Copying remote address bytes', { ...of, direction });
    await cli.line('Copied remote address bytes', { ...of, direction, bytes: 11 });
  }

  const metrics = await scrape(cli);
  const engine = hasLinuxEngine(process.platform, process.version) ? 'linux' : 'node';
  const labels = { namespace: 'default', service: 'echo', port: 'tcp', protocol: 'TCP' };
  t.equal(metrics.value('kpng_userspace_connections_total', labels), 1);
  t.equal(metrics.value('kpng_userspace_connections_active', labels), 0);
  t.equal(metrics.value('kpng_userspace_bytes_total', { ...labels, direction: 'in' }), 11);
  t.equal(metrics.value('kpng_userspace_bytes_total', { ...labels, direction: 'out' }), 11);
  t.equal(metrics.value('kpng_userspace_build_info', { engine, portal: 'address' }), 1);
  t.equal(metrics.value('kubeproxy_sync_proxy_rules_duration_seconds_count'), 1);
  t.equal(metrics.value('kpng_userspace_source_connected'), 1);

  writeFileSync(path, 'services: []\n');
  await cli.line('Stopping service', of);
  const after = await scrape(cli);
  t.equal(after.value('kpng_userspace_connections_total', labels), undefined, 'it is gone');

  cli.kill('SIGTERM');
  t.equal((await cli.exited).code, 0);
});

t.test('health is 503 until the first complete state, and 200 when the source goes', async (t) => {
  const server = await startKpngServer();
  t.teardown(() => server.stop());
  const port = await freePort();
  const cli = startCli(t, [
    ...`local --api 127.0.0.1:${server.port} to-userspace --portal address --error-delay 100ms`.split(
      ' ',
    ),
    ...SERVERS,
  ]);
  const health = await url(cli, 'health');
  const ask = async (path: string) => {
    const response = await fetch(health + path);
    return { status: response.status, body: (await response.json()) as object };
  };
  const stream = await server.stream();
  await stream.request();
  t.match(await ask('/healthz'), {
    status: 503,
    body: { lastUpdated: null, nodeEligible: true, failing: ['starting'] },
  });
  t.equal((await ask('/readyz')).status, 503);
  t.equal((await ask('/livez')).status, 200);
  t.equal((await fetch(`${await url(cli, 'metrics')}/metrics`)).status, 200, 'from the start');

  const echo = service('demo/echo', {
    ips: { clusterIPs: { v4: ['127.0.0.1'] } },
    ports: [{ name: 'x', protocol: 1, port, targetPort: 1 }],
  });
  stream.send(reset, setService(echo));
  stream.send(setEndpoint('demo/echo/e', endpoint('127.0.0.1')), sync);
  await stream.request();
  t.match(await ask('/healthz'), { status: 200, body: { nodeEligible: true } });

  server.stop();
  await cli.line('Source unreachable; serving last known state', { code: 'KPNG_SOURCE_LOST' });
  t.match(await ask('/healthz'), {
    status: 200,
    body: { reasons: [{ code: 'source-unreachable', message: /KPNG_SOURCE_LOST/ }] },
  });
  t.equal((await scrape(cli)).value('kpng_userspace_source_connected'), 0);
});

t.test('TERM lets connections run on for the drain timeout, no longer', async (t) => {
  const { cli, port } = await serving(t, ...SERVERS, '--drain-timeout=300ms');
  const client = connect(port, '127.0.0.1');
  client.on('error', () => {});
  client.write('one');
  t.equal(String((await once(client, 'data'))[0]), 'one');
  const health = await url(cli, 'health');

  cli.kill('SIGTERM');
  await cli.line('Stopping', { signal: 'SIGTERM' });
  t.equal((await fetch(`${health}/healthz`)).status, 503, 'no more traffic, please');
  client.write('two');
  t.equal(String((await once(client, 'data'))[0]), 'two', 'what is there runs on');
  const cut = new Promise((resolve) => {
    client.once('close', resolve);
  });
  await cli.line('Drain timeout reached; closing the remaining connections');
  await cut;
  t.match(await cli.exited, { code: 0 });
  t.equal(cli.log.at(-1)?.msg, 'Stopped');
});

t.test('TERM: new connections are served for the drain delay, with health failing', async (t) => {
  const { cli, port } = await serving(t, ...SERVERS, '--drain-delay=1h');
  const health = await url(cli, 'health');
  cli.kill('SIGTERM');
  await cli.line('Serving new connections for the drain delay', { drainDelay: '1h' });
  for (const probe of ['readyz', 'healthz']) {
    t.equal((await fetch(`${health}/${probe}`)).status, 503, probe);
  }
  t.equal((await fetch(`${health}/livez`)).status, 200, 'a restart would not help');
  t.equal(await request(t, port, 'a late client'), 'a late client');
  cli.kill('SIGINT');
  t.equal((await cli.exited).code, 1);
  t.equal(cli.log.at(-1)?.msg, 'Second signal; exiting at once');
});

t.test(
  'names another program and its process',
  { skip: process.platform !== 'linux' && 'only on linux' },
  async (t) => {
    const foreign = createServer().listen(0, '127.0.0.1');
    await once(foreign, 'listening');
    const { port } = foreign.address() as AddressInfo;
    const { endpoint } = await namedServer(t, 'ours');
    const text = stateText([{ name: 'echo', endpoints: [endpoint.port] }], { echo: port });
    const path = join(t.testdir({ 'state.yaml': text }), 'state.yaml');
    const line = `file --input ${path} to-local to-userspace --portal address`;
    const cli = startCli(t, [...line.split(' '), ...SERVERS]);
    const told = await cli.line('A part of the state cannot be proxied');
    t.match(told, { code: 'KPNG_LISTEN_ADDRESS_IN_USE', servicePortName: 'default/echo:tcp' });
    await cli.line('The first complete state is in place');
    const response = await fetch(`${await url(cli, 'health')}/healthz`);
    t.equal(response.status, 200);
    t.match(await response.json(), {
      reasons: [{ code: 'listeners-failed', count: 1 }, { code: 'services-down' }],
    });
    t.match(told['err'], `(process ${process.pid}) listens there; stop it`);
    foreign.close();
    const again = await cli.line('A part of the state can be proxied again');
    t.match(again, { level: 'info', was: told['err'], servicePortName: 'default/echo:tcp' });
    t.notOk(again['err'], 'which would look as if something failed');
    t.equal(await request(t, port), 'ours');
  },
);
