/** One verdict on a running proxy, whichever process is asked: commands, health pages, metrics. */
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { dirname, join } from 'node:path';
import t, { type Test } from 'tap';
import type { ServicesView, StatusView } from '../../src/admin/views.ts';
import { HEALTH_STATES, type Verdict } from '../../src/observe/verdict.ts';
import { adminRig, type AdminRig, greeter } from '../support/cli.ts';
import { parseMetrics } from '../support/metrics-page.ts';
import { freePort } from '../support/sockets.ts';
import { request } from '../support/tcp-peers.ts';

/** What each place says: the state, and the codes of the reasons. */
async function everywhere(rig: AdminRig, url: string): Promise<Record<string, string[]>> {
  const said = ({ state, reasons = [] }: Partial<Verdict>): string[] => {
    return [state ?? '', ...reasons.map(({ code }) => code).sort()];
  };
  const health = async (page: string): Promise<string[]> =>
    said((await (await fetch(url + page)).json()) as Verdict);
  const status = await rig.run('status');
  const shown = [...status.stdout.matchAll(/^ {2,}.*\(([a-z-]+)\)$/gm)];
  const top = await rig.run('top', '--once');
  const page = parseMetrics(await (await fetch(`${url}/metrics`)).text());
  const series = page.samples.filter(({ name }) => name === 'kpng_userspace_health');
  const worst = Math.max(...series.map(({ value }) => value), 0);
  const codes = series.filter(({ value }) => value > 0).map(({ labels }) => labels['reason'] ?? '');
  const view = said((await rig.ask<StatusView>('status')).health);
  return {
    readyz: await health('/readyz'),
    healthz: await health('/healthz'),
    metric: [HEALTH_STATES[worst] ?? '', ...codes.sort()],
    'status --output json': view,
    status: [HEALTH_STATES[status.code ?? -1] ?? '', ...shown.map(([, code = '']) => code).sort()],
    top: [/^kpng-userspace (\w+)/.exec(top.stdout)?.[1] ?? '', ...view.slice(1)],
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
  const [metricsPort, dead] = [await freePort(), await freePort()];
  const services = [
    { name: 'good', endpoints: [await greeter(t, 'hello')] },
    { name: 'bad', endpoints: [dead] },
  ];
  const rig = await adminRig(t, services, [`--metrics-bind-address=127.0.0.1:${metricsPort}`]);
  const url = `http://127.0.0.1:${metricsPort}`;
  await agrees(t, rig, url, 'ready');

  await request(t, rig.ports['bad'] ?? 0).catch(() => undefined);
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
  t.equal(await request(t, rig.ports['bad'] ?? 0), 'back');
  await agrees(t, rig, url, 'ready');

  await rig.run('drain', '--all');
  await agrees(t, rig, url, 'down', 'drained');
  await rig.run('undrain');
});
