import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { startCli } from '../support/cli.ts';
import { freePort } from '../support/sockets.ts';

/** A service with an endpoint on the node n1 and one elsewhere. */
function state(port: number): string {
  return `- service:
    name: web
    type: LoadBalancer
    externaltraffictolocal: true
    healthchecknodeport: ${port}
    ips: {clusterips: {v4: [127.77.1.1]}}
    ports: [{name: http, protocol: 1, port: 8080, targetport: 8080}]
  endpoints:
  - endpoint: {ips: {v4: [127.0.0.1]}}
    topology: {node: n1}
  - endpoint: {ips: {v4: [127.0.0.2]}}
    topology: {node: n2}
`;
}

function start(t: Test, services: string, backend: string, node: string) {
  const folder = t.testdir({
    'state.yaml': `nodes: [{name: n1}, {name: n2}, {name: n3}]\nservices:\n${services}`,
  });
  const line = `file --input ${join(folder, 'state.yaml')} to-local ${backend} --node-name ${node}`;
  return startCli(t, line.split(' '));
}

const USERSPACE =
  'to-userspace --portal none --nodeport-addresses 127.0.0.0/8 --metrics-bind-address=127.0.0.1:0 ' +
  '--healthz-bind-address=127.0.0.1:0';

const CASES = [
  ['n1', 200],
  ['n3', 503],
] as const;

for (const backend of ['to-healthchecks --ip 127.0.0.1', USERSPACE]) {
  const word = backend.split(' ')[0] ?? '';
  t.test(`${word} answers load balancers on health-check node ports`, async (t) => {
    for (const [node, status] of backend === USERSPACE ? [['n1', 200] as const] : CASES) {
      const port = await freePort();
      const cli = start(t, state(port), backend, node);
      await cli.line('The first complete state is in place');
      const response = await fetch(`http://127.0.0.1:${port}/healthz`);
      t.equal(response.status, status, node);
      t.match(await response.json(), {
        service: { namespace: 'default', name: 'web' },
        localEndpoints: status === 200 ? 1 : 0,
        serviceProxyHealthy: true,
      });
      cli.kill('SIGTERM');
      t.equal((await cli.exited).code, 0);
      await t.rejects(fetch(`http://127.0.0.1:${port}/`));
    }
  });
}

t.test('a port in use is reported in the log and in health, and delays nothing else', async (t) => {
  const foreign = createServer().listen(0, '127.0.0.1');
  await once(foreign, 'listening');
  t.teardown(() => foreign.close());
  const taken = (foreign.address() as AddressInfo).port;
  const cli = start(t, state(taken), USERSPACE, 'n1');
  await cli.line('The first complete state is in place');
  const line = await cli.line('Serving health-check node port failed');
  t.match(line, { code: 'KPNG_LISTEN_ADDRESS_IN_USE', servicePortName: 'default/web' });
  const url = String((await cli.line('Serving health'))['url']);
  const health = await fetch(`${url}/healthz`);
  t.equal(health.status, 200);
  t.match(await health.json(), {
    reasons: [{ code: 'not-served', message: /1 not served \(KPNG_LISTEN_ADDRESS_IN_USE\)/ }],
  });
});

t.test('--health-check-node-ports=false leaves them to another program', async (t) => {
  const port = await freePort();
  const cli = start(t, state(port), `${USERSPACE} --health-check-node-ports=false`, 'n1');
  await cli.line('The first complete state is in place');
  await t.rejects(fetch(`http://127.0.0.1:${port}/`));
});
