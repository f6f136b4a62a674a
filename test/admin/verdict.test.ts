/** One verdict on a running proxy, whichever process is asked: commands, health pages, metrics. */
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { dirname, join } from 'node:path';
import t, { type Test } from 'tap';
import type { ServicesView, StatusView } from '../../src/admin/views.ts';
import { HEALTH_STATES } from '../../src/observe/verdict.ts';
import { adminRig, type AdminRig, greeter } from '../support/cli.ts';
import { parseMetrics } from '../support/metrics-page.ts';
import { freePort } from '../support/sockets.ts';

/** Connects, and waits for the end of the connection or for its first bytes. */
function knock(port: number | undefined): Promise<void> {
  return new Promise((resolve) => {
    const socket = connect(port ?? 0, '127.0.0.1').on('error', () => undefined);
    socket.on('close', () => resolve()).on('data', () => socket.destroy());
  });
}

async function rigOf(t: Test) {
  const metricsPort = await freePort();
  const dead = await freePort();
  const rig = await adminRig(
    t,
    [
      { name: 'good', endpoints: [await greeter(t, 'hello')] },
      { name: 'bad', endpoints: [dead] },
    ],
    [`--metrics-bind-address=127.0.0.1:${metricsPort}`],
  );
  return { rig, dead, url: `http://127.0.0.1:${metricsPort}` };
}

/** What each place says: the state, and the codes of the reasons. */
async function everywhere(rig: AdminRig, url: string): Promise<Record<string, string[]>> {
  const health = async (page: string): Promise<string[]> => {
    const { state, reasons = [] } = (await (await fetch(url + page)).json()) as {
      state: string;
      reasons?: { code: string }[];
    };
    return [state, ...reasons.map(({ code }) => code).sort()];
  };
  const status = await rig.run('status');
  const { health: view } = await rig.ask<StatusView>('status');
  const top = await rig.run('top', '--once');
  const page = parseMetrics(await (await fetch(`${url}/metrics`)).text());
  const series = page.samples.filter(({ name }) => name === 'kpng_userspace_health');
  const worst = Math.max(...series.map(({ value }) => value), 0);
  const codes = series.filter(({ value }) => value > 0).map(({ labels }) => labels['reason'] ?? '');
  const first = /^kpng-userspace (\w+)/.exec(top.stdout)?.[1] ?? '';
  return {
    readyz: await health('/readyz'),
    healthz: await health('/healthz'),
    metric: [HEALTH_STATES[worst] ?? '', ...codes.sort()],
    'status --output json': [view.state, ...view.reasons.map(({ code }) => code).sort()],
    status: [
      HEALTH_STATES[status.code ?? -1] ?? '',
      ...[...status.stdout.matchAll(/^ {2,}.*\(([a-z-]+)\)$/gm)]
        .map(([, code = '']) => code)
        .sort(),
    ],
    top: [first, ...view.reasons.map(({ code }) => code).sort()],
  };
}

async function agrees(t: Test, rig: AdminRig, url: string, ...expected: string[]): Promise<void> {
  const same = (all: Record<string, string[]>): boolean =>
    Object.values(all).every((each) => each.join() === expected.join());
  // Health pages and metrics are a second old, or fifty times what reading took.
  const end = performance.now() + 20_000;
  let all = await everywhere(rig, url);
  while (!same(all) && performance.now() < end) all = await everywhere(rig, url);
  for (const [place, said] of Object.entries(all)) t.strictSame(said, expected, place);
}

t.test('commands, health pages and metrics agree, and keep the evidence', async (t) => {
  const { rig, dead, url } = await rigOf(t);
  await agrees(t, rig, url, 'ready');

  await knock(rig.ports['bad']);
  await agrees(t, rig, url, 'degraded', 'services-down');
  const { rows } = await rig.ask<ServicesView>('services', '--state', 'down');
  t.match(rows, [{ name: 'default/bad:tcp', endpoints: { usable: 0, total: 1 } }]);

  const path = join(dirname(dirname(rig.socket)), 'state.yaml');
  const state = readFileSync(path, 'utf8');
  writeFileSync(path, '{"services": 7}');
  await agrees(t, rig, url, 'degraded', 'services-down', 'state-file-invalid');
  t.match(await rig.ask('status'), { source: { connected: false } });
  const ready = await fetch(`${url}/readyz`);
  t.equal(ready.status, 200, 'it serves, so it is not restarted');
  await ready.body?.cancel();

  writeFileSync(path, state);
  await agrees(t, rig, url, 'degraded', 'services-down');

  const server = createServer((socket) => socket.end('back')).listen(dead, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  await knock(rig.ports['bad']);
  await agrees(t, rig, url, 'ready');

  await rig.run('drain', '--all');
  await agrees(t, rig, url, 'down', 'drained');
  await rig.run('undrain');
});

t.test('a proxy that does not answer is down', async (t) => {
  const { rig } = await rigOf(t);
  rig.cli.child.kill('SIGKILL');
  await once(rig.cli.child, 'close');
  const status = await rig.run('status');
  t.equal(status.code, 2);
  t.match(
    status.stdout,
    /^state +down\n +no answer on .*the process .* is gone \(proxy-unreachable\)/,
  );
  t.match(await rig.ask('status'), {
    health: { state: 'down', reasons: [{ code: 'proxy-unreachable' }] },
  });
});
