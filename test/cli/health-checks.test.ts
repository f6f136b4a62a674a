import { join } from 'node:path';
import t, { type Test } from 'tap';
import { GLOBAL_FLAGS } from '../../src/cli/flags/global.ts';
import { pickValues } from '../../src/cli/flags/table.ts';
import { startUserspace } from '../../src/cli/sinks/userspace-runtime.ts';
import { Activation } from '../../src/util/activation.ts';
import { captureLog } from '../support/captured-log.ts';
import { startCli } from '../support/cli.ts';
import { userspaceOptions } from '../support/command-lines.ts';
import { endpoint, entry, TestView } from '../support/messages.ts';
import { freePort } from '../support/sockets.ts';
import { tcpServer } from '../support/tcp-peers.ts';

/** A service with an endpoint on the node n1 and one elsewhere. */
function service(port: number, index: number): string {
  return `- service:
    name: web-${index}
    type: LoadBalancer
    externaltraffictolocal: true
    healthchecknodeport: ${port}
    ips: {clusterips: {v4: [127.77.1.${index + 1}]}}
    ports: [{name: http, protocol: 1, port: 8080, targetport: 8080}]
  endpoints:
  - endpoint: {ips: {v4: [127.0.0.1]}}
    topology: {node: n1}
  - endpoint: {ips: {v4: [127.0.0.2]}}
    topology: {node: n2}
`;
}

/** The program with a service for each health-check node port, once it serves. */
async function serving(t: Test, backend: string, node: string, ...ports: readonly number[]) {
  const services = ports.map(service).join('');
  const state = `nodes: [{name: n1}, {name: n2}, {name: n3}]\nservices:\n${services}`;
  const path = join(t.testdir({ 'state.yaml': state }), 'state.yaml');
  const line = `file --input ${path} to-local ${backend} --node-name ${node}`;
  const cli = startCli(t, line.split(' '));
  await cli.line('The first complete state is in place');
  return cli;
}

const answer = async (port: number) => {
  const response = await fetch(`http://127.0.0.1:${port}/healthz`);
  return { status: response.status, body: await response.json() };
};

t.test('to-healthchecks answers load balancers on health-check node ports', async (t) => {
  for (const [node, status, localEndpoints] of [
    ['n1', 200, 1],
    ['n3', 503, 0],
  ] as const) {
    const port = await freePort();
    const cli = await serving(t, 'to-healthchecks --ip 127.0.0.1', node, port);
    const about = { namespace: 'default', name: 'web-0' };
    const body = { service: about, localEndpoints, serviceProxyHealthy: true };
    t.match(await answer(port), { status, body }, node);
    cli.kill('SIGTERM');
    t.equal((await cli.exited).code, 0);
    await t.rejects(answer(port));
  }
});

const USERSPACE =
  'to-userspace --portal none --nodeport-addresses 127.0.0.0/8 --metrics-bind-address=127.0.0.1:0 ' +
  '--healthz-bind-address=127.0.0.1:0';

t.test('to-userspace does, too; a port in use is reported and delays nothing else', async (t) => {
  const { port: taken } = await tcpServer(t);
  const port = await freePort();
  const cli = await serving(t, USERSPACE, 'n1', taken, port);
  t.match(await answer(port), { status: 200, body: { localEndpoints: 1 } });
  await t.rejects(fetch(`http://[::1]:${port}/`), 'only at --nodeport-addresses');
  const line = await cli.line('Serving health-check node port failed');
  t.match(line, { code: 'KPNG_LISTEN_ADDRESS_IN_USE', servicePortName: 'default/web-0' });
  const { url } = await cli.line('Serving health');
  const health = await fetch(`${String(url)}/healthz`);
  t.equal(health.status, 200);
  t.match(await health.json(), {
    reasons: [{ code: 'not-served', message: /1 not served \(KPNG_LISTEN_ADDRESS_IN_USE\)/ }],
  });
  cli.kill('SIGTERM');
  t.equal((await cli.exited).code, 0);
  await t.rejects(answer(port));
});

t.test('--health-check-node-ports=false leaves them to another program', async (t) => {
  const port = await freePort();
  await serving(t, `${USERSPACE} --health-check-node-ports=false`, 'n1', port);
  await t.rejects(answer(port));
});

t.test('to-userspace answers 503 while a change is not applied', async (t) => {
  const { log } = await captureLog();
  const flags = '--portal none --engine node --nodeport-addresses 127.0.0.0/8';
  const running = await startUserspace(userspaceOptions(flags), {
    log,
    globals: pickValues(GLOBAL_FLAGS, new Map()),
    stdout: process.stdout,
    activation: Activation.immediate(),
    otherPorts: () => [],
  });
  t.teardown(() => running.destroy());
  const healthCheckNodePort = await freePort();
  const local = { externalTrafficToLocal: true, healthCheckNodePort };
  const view = new TestView();
  const change = view.set(entry('d/web', local, { a: endpoint('127.0.0.1', { local: true }) }));
  let fails = true;
  const get = (key: string) => {
    if (!fails) return view.get(key);
    fails = false;
    throw new Error('not now');
  };
  const failing = { ...change, view: { size: view.size, get, entries: () => view.entries() } };
  await t.rejects(running.sink.sync(failing), { message: 'not now' });
  const body = { localEndpoints: 1, serviceProxyHealthy: false };
  t.match(await answer(healthCheckNodePort), { status: 503, body });
  await running.sink.sync(change);
  t.equal((await answer(healthCheckNodePort)).status, 200);
});
