import { captureLog } from '../support/captured-log.ts';
import { runCli, startCli } from '../support/cli.ts';
import { defaultsOf, userspaceOptions } from '../support/command-lines.ts';
import * as objects from '../support/fake-api/objects.ts';
import { startFakeApi } from '../support/fake-api/server.ts';
import { endpoint, entry, TestView } from '../support/messages.ts';
import { freePort } from '../support/sockets.ts';
import { tcpServer } from '../support/tcp-peers.ts';
import { until } from '../support/until.ts';
import { chmodSync, existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import type { Test } from 'tap';
import { GLOBAL_FLAGS } from '../../src/cli/flags/global.ts';
import { startUserspace } from '../../src/cli/sinks/userspace-runtime.ts';
import { Activation } from '../../src/util/activation.ts';

if (process.platform === 'win32') t.plan(0, 'the programs are shell scripts');

/** The program with a callout that does not end by itself, once that runs; `callout`: its process id. */
async function start(t: Test, ...flags: readonly string[]) {
  const pidFile = join(t.testdirName, 'pid');
  const script = `#!/bin/sh\necho $$ >'${pidFile}'; exec sleep 1000\n`;
  const folder = t.testdir({ callout: script, 'state.yaml': 'services: []\n' });
  chmodSync(join(folder, 'callout'), 0o755);
  const line = `file -i ${folder}/state.yaml to-callout --callout ${folder}/callout -v=1`;
  const cli = startCli(t, [...line.split(' '), ...flags]);
  const read = (): string => (existsSync(pidFile) ? readFileSync(pidFile, 'utf8') : '');
  await until(() => read().endsWith('\n'));
  return { cli, callout: Number(read()) };
}

t.test('a program that takes too long is ended', async (t) => {
  const { cli, callout } = await start(t, '--callout-timeout=100ms', '--error-delay=1h');
  t.match(await cli.line('Callout failed'), { err: /timed out after 100ms/ });
  await until(() => !isThere(callout));
});

for (const [signals, drainTimeout, code] of [
  ['TERM, which waits as long as the drain timeout says', '50ms', 0],
  ['a second TERM', '1h', 1],
] as const) {
  t.test(`${signals}, leaves no program behind`, async (t) => {
    const { cli, callout } = await start(t, `--drain-timeout=${drainTimeout}`);
    cli.kill('SIGTERM');
    await cli.line('Stopping');
    if (code === 1) cli.kill('SIGTERM');
    t.equal((await cli.exited).code, code);
    t.equal(
      cli.log.some(({ msg }) => msg === 'Callout stopped'),
      code === 0,
    );
    await until(() => !isThere(callout));
  });
}

/** The process that adopts orphans may not have done so yet. */
function isThere(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

const answer = async (port: number) => {
  const response = await fetch(`http://127.0.0.1:${port}/healthz`);
  return { status: response.status, body: await response.json() };
};

t.test('to-healthchecks answers load balancers on health-check node ports', async (t) => {
  const port = await freePort();
  const state = `nodes: [{name: n1}, {name: n2}]
services:
- service: {name: web, type: LoadBalancer, externaltraffictolocal: true, healthchecknodeport: ${port}}
  endpoints:
  - endpoint: {ips: {v4: [127.0.0.1]}}
    topology: {node: n1}
  - endpoint: {ips: {v4: [127.0.0.2]}}
    topology: {node: n2}
`;
  const path = join(t.testdir({ 'state.yaml': state }), 'state.yaml');
  const line = `file --input ${path} to-local to-healthchecks --ip 127.0.0.1 --node-name n1`;
  const cli = startCli(t, line.split(' '));
  await cli.line('The first complete state is in place');
  const service = { namespace: 'default', name: 'web' };
  const body = { service, localEndpoints: 1, serviceProxyHealthy: true };
  t.match(await answer(port), { status: 200, body });
  await t.rejects(fetch(`http://[::1]:${port}/`), 'only at --ip');
  cli.kill('SIGTERM');
  t.equal((await cli.exited).code, 0);
  await t.rejects(answer(port));
});

/** to-userspace with a local endpoint for each of these health-check node ports, and the change that adds them. */
async function userspace(t: Test, flags: string, ...ports: readonly number[]) {
  const { log } = await captureLog();
  const line = `--portal none --engine node --nodeport-addresses 127.0.0.0/8 ${flags}`;
  const running = await startUserspace(userspaceOptions(line), {
    log,
    globals: defaultsOf(GLOBAL_FLAGS),
    stdout: process.stdout,
    nodeName: 'n1',
    activation: Activation.immediate(),
  });
  t.teardown(() => running.destroy?.());
  const view = new TestView();
  const services = ports.map((healthCheckNodePort, index) => {
    const local = { externalTrafficToLocal: true, healthCheckNodePort };
    return entry(`d/web-${index}`, local, { a: endpoint('127.0.0.1', { local: true }) });
  });
  return { running, view, change: view.set(...services) };
}

t.test('so does to-userspace: with 503 while a change is not applied', async (t) => {
  const { port: taken } = await tcpServer(t);
  const port = await freePort();
  const { running, view, change } = await userspace(t, '', taken, port);
  let fails = true;
  const get = (key: string) => {
    if (!fails) return view.get(key);
    fails = false;
    throw new Error('not now');
  };
  const failing = { ...change, view: { size: view.size, get, entries: () => view.entries() } };
  await t.rejects(running.sink.sync(failing), { message: 'not now' });
  const body = { localEndpoints: 1, serviceProxyHealthy: false };
  t.match(await answer(port), { status: 503, body });
  await running.sink.sync(change);
  t.equal((await answer(port)).status, 200);
  await t.rejects(fetch(`http://[::1]:${port}/`), 'only at --nodeport-addresses');
  // A port in use is a problem and delays nothing else.
  const problem = { code: 'KPNG_LISTEN_ADDRESS_IN_USE', servicePort: 'd/web-0' };
  t.match(running.proxy?.problems(), [problem]);
  await running.close?.();
  await t.rejects(answer(port));
  const without = await userspace(t, '--health-check-node-ports=false', port);
  await without.running.sink.sync(without.change);
  await t.rejects(answer(port), 'they are left to another program');
});

t.test('kube to-userspace: a node about to be removed', async (t) => {
  const api = await startFakeApi(t);
  api.upsert('nodes', objects.node('node-a', 'north'));
  const line = `kube --server ${api.url} to-local to-userspace --portal none --node-name node-a`;
  const serve = ['--metrics-bind-address=', '--healthz-bind-address=127.0.0.1:0'];
  const cli = startCli(t, [...line.split(' '), ...serve]);
  t.match(await cli.line('Connected to the Kubernetes API'), {
    server: api.url,
    config: '--server',
    user: 'system:anonymous',
  });
  const { url } = await cli.line('Serving health');
  await cli.line('The first complete state is in place');
  const status = async (probe: string): Promise<number> =>
    (await fetch(`${String(url)}/${probe}`)).status;
  t.equal(await status('healthz'), 200);
  const taints = [{ key: 'ToBeDeletedByClusterAutoscaler', effect: 'NoSchedule' }];
  api.upsert('nodes', { ...objects.node('node-a', 'north'), spec: { taints } });
  await cli.line('Node is about to be removed; /healthz answers 503', { because: 'tainted' });
  t.equal(await status('healthz'), 503);
  t.match(await (await fetch(`${String(url)}/healthz`)).json(), { nodeEligible: false });
  t.same([await status('livez'), await status('readyz')], [200, 200]);
  api.upsert('nodes', objects.node('node-a', 'north'));
  await cli.line('Node is eligible for load balancers again');
  t.equal(await status('healthz'), 200);
});

const STATE = `nodes: [{name: n1}]
services:
- service:
    name: web
    type: LoadBalancer
    externaltraffictolocal: true
    healthchecknodeport: 32100
    ips: {clusterips: {v4: [10.96.0.10], v6: ['fd96::10']}, externalips: {v4: [203.0.113.10]}}
    ports:
    - {name: http, protocol: 1, port: 80, nodeport: 30080, targetport: 8080}
    - {name: dns, protocol: 2, port: 53, targetport: 8080}
  endpoints:
  - endpoint: {ips: {v4: [127.0.0.1]}}
    topology: {node: n1}
- service:
    name: far
    externaltraffictolocal: true
    internaltraffictolocal: true
    ips: {clusterips: {v4: [10.96.0.12]}, externalips: {v4: [203.0.113.12]}}
    ports: [{name: http, protocol: 1, port: 80, targetport: 8080}]
  endpoints:
  - endpoint: {ips: {v4: [127.0.0.2]}}
    topology: {node: n2}
- service:
    name: empty
    ips: {clusterips: {v4: [10.96.0.11]}}
    ports: [{name: http, protocol: 1, port: 80, nodeport: 30080, targetport: 8080}]
`;

async function dryRun(t: Test, flags: string, backend = 'to-userspace'): Promise<string> {
  const folder = t.testdir({ 'state.yaml': STATE });
  const path = join(folder, 'state.yaml');
  const line = `file --input ${path} to-local ${backend} --node-name n1 --dry-run ${flags}`;
  const { code, stdout, stderr } = await runCli(line.trim().split(' '));
  t.equal(code, 0);
  t.notMatch(stderr, /Serving|"level":"error"|Wrote/, 'no server, no rules');
  return stdout;
}

t.test('shows the transaction of nft, and where it would listen', async (t) => {
  const ports = '--port-range 36000-36100 --metrics-bind-address=:0';
  const flags = `--portal nftables ${ports} --cluster-cidr 10.244.0.0/16`;
  const text = await dryRun(t, flags);
  t.equal(await dryRun(t, flags), text, 'it says the same each time');
  t.match(text, /^# portal nftables: /);
  t.match(text, /^# listen on 0\.0\.0\.0:36\d\d\d\/TCP for default\/web:http \(external\)$/m);
  t.match(text, /^nft -f - <<'EOF'\nadd table inet kpng-userspace\n[^]*\nEOF\n/m);
  t.match(text, /^10\.96\.0\.10 \. tcp \. 80 : 36\d\d\d,?$/m);
  t.match(text, /^conntrack -L -f ipv4 -p udp --orig-port-dst 53 --orig-dst 10\.96\.0\.10$/m);
  t.match(text, /^# answer load balancers on port 32100 for default\/web$/m);
  const conflict = 'default/web:http cannot have node port 30080/TCP: default/empty';
  t.ok(text.includes(`\n# KPNG_PORTAL_CONFLICT: ${conflict}`));
  // Services whose endpoints are on other nodes.
  const elements = (set: string) =>
    new RegExp(`add element inet kpng-userspace ${set} \\{\n([^]*?)\\}`).exec(text)?.[1];
  t.match(elements('no-local4'), '203.0.113.12 . tcp . 80');
  t.match(elements('pods4'), '203.0.113.12 . tcp . 80 . 10.244.0.0/16');
  t.match(elements('services4'), /^203\.0\.113\.12 \. tcp \. 80 : \d+,?$/m);
  t.match(elements('guarded4'), '10.96.0.12 . tcp . 80', 'no client may use the cluster IP');
  t.notMatch(elements('empty4'), '10.96.0.12');
});

t.test('shows the routing rule and the shared socket of the transparent portal', async (t) => {
  const text = await dryRun(
    t,
    '--engine linux --portal transparent --health-check-node-ports=false',
  );
  t.match(text, /^# portal transparent: .*\n# ports from 50000 on stand for those/);
  t.match(text, /^# listen on 127\.0\.0\.1:50000\/TCP for default\/far:http \(external\)$/m);
  t.match(text, /^# listen on 127\.0\.0\.1:50000\/TCP for default\/web:http \(internal\)$/m);
  t.match(text, /^# listen on 10\.96\.0\.10:53\/UDP for default\/web:dns \(internal\)$/m);
  t.match(text, /^rule add fwmark 0x40\/0x40 lookup 10040 priority 40 protocol 78$/m);
  t.match(text, /listeners4 \{\ntcp : 50000\n\}/);
  t.match(text, /services4 \{\n(?:[^}]*\n)?10\.96\.0\.10 \. tcp \. 80,?\n/);
  t.notMatch(text, /load balancers/);
});

t.test('shows how addresses would be added to an interface', async (t) => {
  const text = await dryRun(t, '--portal-interface kpng-dry-run');
  t.match(text, /^# portal address: /);
  t.match(text, /^ip -force -batch - <<'EOF'\nlink add name kpng-dry-run type dummy\n/m);
  const add = 'address add 10.96.0.10/32 dev kpng-dry-run scope host metric 27504\n';
  t.ok(text.includes(add));
  t.ok(text.indexOf(add) < text.indexOf('# listen on 10.96.0.10:80/TCP for default/web:http'));
  t.match(text, /^# listen on \[fd96::10\]:53\/UDP for default\/web:dns \(internal\)$/m);
});

t.test('where nothing has to be run, it shows where it would listen', async (t) => {
  t.match(await dryRun(t, '--portal address'), /^# listen on 10\.96\.0\.10:80\/TCP/m);
  const none = await dryRun(t, '--portal none --bind-address 127.0.0.1');
  t.match(none, /^# listen on 127\.0\.0\.1:5000\d\/TCP for default\/web:http \(internal\)$/m);
  t.notMatch(none, /^[^#\n]/m, 'nothing but comments');
});

t.test('to-extip shows the rules of both families', async (t) => {
  const text = await dryRun(t, '--load-balancers-only --iptables-chain-prefix my-', 'to-extip');
  t.match(text, /^iptables-restore --noflush .*<<'EOF'\n\*filter\n:my-forward - \[0:0\]$/m);
  t.match(text, /^-A my-DNAT -d 203\.0\.113\.10 -p tcp .*--to-destination 127\.0\.0\.1:8080$/m);
  t.match(text, /^ip6tables-restore /m);
  t.notMatch(text, '203.0.113.12');
});

t.test('a state file that is missing or has errors ends it', async (t) => {
  const folder = t.testdir({ 'bad.yaml': 'services: 5\n' });
  for (const name of ['missing.yaml', 'bad.yaml']) {
    const path = join(folder, name);
    const line = `file --input ${path} to-local to-userspace --node-name n1 --dry-run`;
    const { code, stdout, stderr } = await runCli(line.split(' '));
    t.equal(code, 1);
    t.equal(stdout, '');
    t.match(stderr, /Nothing to preview: the state file could not be loaded/);
    t.match(stderr, name === 'bad.yaml' ? /KPNG_STATE_FILE_INVALID/ : /KPNG_STATE_FILE_READ/);
  }
});
