/** The program itself with the address portal, its dry run, and health-check node ports. */
import t, { type Test } from 'tap';
import type { Cli } from '../support/cli.ts';
import { lab, type Lab } from './support/lab.ts';
import { ADDRESSES, NODE } from './support/network.ts';
import { onNode, proxyOf } from './support/web-proxy.ts';

const PLACES = ['10.96.0.10:80', '[fd96::10]:80', '203.0.113.10:80', `${NODE.v4}:30080`];

/** A load-balanced service with the policy Local, one pod of which is on the node n1. */
function state(): string {
  const endpoints = (['pod-a', 'pod-b'] as const).map((pod, index) => {
    const { v4, v6 } = ADDRESSES[pod];
    return `  - endpoint: {ips: {v4: [${v4}], v6: ['${v6}']}}\n    topology: {node: n${index + 1}}\n`;
  });
  return `nodes: [{name: n1}, {name: n2}, {name: n3}]
services:
- service:
    name: web
    type: LoadBalancer
    externaltraffictolocal: true
    healthchecknodeport: 32100
    ips: {clusterips: {v4: [10.96.0.10], v6: ['fd96::10']}, externalips: {v4: [203.0.113.10]}}
    ports: [{name: http, protocol: 1, port: 80, nodeport: 30080, targetport: 8080}]
  endpoints:
${endpoints.join('')}`;
}

const UNPRIVILEGED = ['setpriv', '--bounding-set=-net_admin', '--inh-caps=-net_admin'];

function proxy(t: Test, here: Lab, flags: string, before?: readonly string[], node = 'n1'): Cli {
  return proxyOf(state(), node)(t, here, flags, before);
}

async function inNode(here: Lab, line: string, stdin?: string): Promise<string> {
  const [file = '', ...args] = line.split(' ');
  return here.network.inside('node', file, args, stdin);
}

t.test('serves from an interface of its own, which cleanup removes', async (t) => {
  const here = await lab(t);
  const before = await here.state();
  const cli = proxy(t, here, '--portal-interface kpng0');
  await cli.line('Service addresses added to the interface', { added: 3 });
  await cli.line('The first complete state is in place');
  for (const place of PLACES) t.match(await here.client.ask(place), /^pod/, place);
  t.match(await here.podA.ask('10.96.0.10:80'), /^pod/);
  t.equal(await here.ruleset(), '');
  cli.kill('SIGTERM');
  t.equal((await cli.exited).code, 0);
  t.equal(await here.client.ask(PLACES[0] ?? ''), 'ECONNREFUSED', 'the addresses stay');
  for (const time of ['first', 'second']) {
    t.match(await onNode(t, here, ['cleanup']).exited, { code: 0, stderr: '' }, time);
    t.equal(await here.state(), before, time);
  }
});

t.test('--cleanup-on-exit removes the addresses when the last connection has ended', async (t) => {
  const here = await lab(t);
  const before = await here.state();
  const cli = proxy(t, here, '--portal address --portal-interface kpng0 --cleanup-on-exit');
  await cli.line('The first complete state is in place');
  await here.client.open('kept', '10.96.0.10:80');
  t.match(await here.client.say('kept'), /^pod/);
  cli.kill('SIGTERM');
  await cli.line('Stopping');
  t.match(await here.client.say('kept'), /^pod/, 'it is served on');
  await here.client.close('kept');
  t.equal((await cli.exited).code, 0);
  t.equal(await here.state(), before);
});

t.test('without the right to add addresses it serves what it can, and says so', async (t) => {
  const here = await lab(t);
  const before = await here.state();
  const cli = proxy(t, here, '--portal-interface kpng0', UNPRIVILEGED);
  const told = await cli.line(
    'Changing service addresses on the interface failed; present addresses stay',
  );
  t.match(told, {
    code: 'KPNG_PORTAL_PERMISSION',
    err: /making the interface kpng0.*CAP_NET_ADMIN/,
  });
  await cli.line('Applying a change failed; retrying');
  t.match(await here.client.ask(`${NODE.v4}:30080`), /^pod-a/, 'node ports work');
  const url = String((await cli.line('Serving health'))['url']);
  const health = await inNode(here, `curl -sS ${url}/healthz`);
  t.match(
    health,
    /the service addresses could not be put on the interface since .* \(KPNG_PORTAL_PERM/,
  );
  t.equal(await here.state(), before);
});

t.test('what a dry run prints, a shell can run', async (t) => {
  const here = await lab(t);
  const before = await here.state();
  const nft = await proxy(t, here, '--portal nftables --dry-run').exited;
  t.equal(nft.code, 0);
  t.equal(await here.state(), before, 'nothing was done');
  await inNode(here, 'sh -e', nft.stdout);
  t.match(await here.ruleset(), /10\.96\.0\.10 \. tcp \. 80 : 500\d\d/);
  await inNode(here, 'nft flush ruleset');

  const addresses = await proxy(t, here, '--portal-interface lo --dry-run').exited;
  await inNode(here, 'sh -e', addresses.stdout);
  t.match(await inNode(here, 'ip address show dev lo'), /inet 10\.96\.0\.10\/32 metric 27504/);
  t.match(await onNode(t, here, ['cleanup']).exited, { code: 0, stdout: /on lo any more/ });
  t.equal(await here.state(), before);
});

t.test('load balancers on other machines learn which nodes have endpoints', async (t) => {
  const here = await lab(t);
  const curl = async (): Promise<string> =>
    here.network.inside('client', 'curl', ['-sS', '-i', `http://${NODE.v4}:32100/healthz`]);
  for (const [portal, node, status] of [
    ['nftables', 'n1', 200],
    ['address', 'n3', 503],
  ] as const) {
    const cli = proxy(t, here, `--portal ${portal}`, [], node);
    await cli.line('The first complete state is in place');
    const answer = await curl();
    t.match(answer, `HTTP/1.1 ${status}`, portal);
    t.match(answer, `x-load-balancing-endpoint-weight: ${status === 200 ? 1 : 0}`);
    cli.kill('SIGTERM');
    t.equal((await cli.exited).code, 0);
    await t.rejects(curl(), /Failed to connect|Connection refused/);
  }
});
