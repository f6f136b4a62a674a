import { HAS_LINUX_ENGINE } from '../runner/check.ts';
import { adminRig, Cli, stateFile } from '../support/cli.ts';
import { type MetricsPage, parseMetrics } from '../support/metrics-page.ts';
import { echoServer, request } from '../support/tcp-peers.ts';
import { writeFileSync } from 'node:fs';
import t from 'tap';
import type { Test } from 'tap';

/** The whole program at its main job: state file in, connections through, and everything that watches. */

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

  const [of, endpoint] = [{ servicePortName: 'default/echo:tcp' }, `127.0.0.1:${backend}`];
  const relay = { ...of, v: 4, endpoint, inLocalAddress: `127.0.0.1:${port}` };
  await cli.line('Creating proxy between remote and local addresses', relay);
  await cli.line('Copied remote address bytes', { ...of, direction: 'to backend', bytes: 11 });

  const metrics = await scrape(cli);
  const engine = HAS_LINUX_ENGINE ? 'linux' : 'node';
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

const onlyLinux = { skip: process.platform === 'linux' ? false : 'only on linux' };

t.test(
  'too few descriptors are logged: few clients, or none; enough are not',
  onlyLinux,
  async (t) => {
    const { path } = await stateFile(t, []);
    const line = `file -i ${path} to-userspace --portal=none --node-name=n1`.split(' ');
    const flags = ['--metrics-bind-address=', '--healthz-bind-address='];
    const code = 'KPNG_LIMIT_REACHED';
    const few = 'Too few file descriptors for many clients; raise ulimit -n';
    const none =
      'No file descriptors left for clients; raise ulimit -n or lower --reserved-descriptors';
    for (const [limit, reserve, message, expected] of [
      [256, [], few, { level: 'warn', limit: 256, reserved: 64, left: 192 }],
      [256, ['--reserved-descriptors=256'], none, { level: 'error', left: 0, code }],
      [1024, [], 'The first complete state is in place', { level: 'info' }],
    ] as const) {
      const inside = ['/bin/sh', '-c', `ulimit -n ${limit} && exec "$0" "$@"`];
      const cli = new Cli(t, [...line, ...flags, ...reserve], undefined, inside);
      t.match(await cli.line(message), expected);
      t.equal(cli.log.filter(({ msg }) => /descriptors/.test(msg)).length, limit < 1024 ? 1 : 0);
    }
  },
);
