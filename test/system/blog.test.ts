/**
 * The example of kpng's blog post, with its command lines: `kpng kube --service-proxy-name=kpng-example to-api`,
 * and the callout for all traffic of an external IP as a client of it. Real processes, rules and packets; only
 * the Kubernetes API is a stand-in.
 */
import { hostname } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { endpoint, service, slice } from '../support/fake-api/objects.ts';
import { Cli } from '../support/cli.ts';
import { eventually } from '../support/until.ts';
import { lab, type Lab } from './support/lab.ts';
import { ScriptProcess } from './support/machine.ts';
import { ADDRESSES } from './support/network.ts';
import type { Kube } from './support/kube-main.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const CALLOUT = join(ROOT, 'examples', 'all-ip', 'callout.ts');
const EXTERNAL = '203.0.113.40';
const LABELS = { 'service.kubernetes.io/service-proxy-name': 'kpng-example' };

/** Starts an executable on the node, as one would type its name there. */
function start(t: Test, { network }: Lab, name: string, args: string[], env: string[] = []): Cli {
  const inside = network.command('node', 'env', ...env);
  return new Cli(t, args, join(ROOT, 'bin', `${name}.js`), inside);
}

/** The one service, with the pod behind it. It is where kpng-callout runs. */
function pods(...names: ('pod-a' | 'pod-b')[]) {
  const here = names.map((name) => endpoint(ADDRESSES[name].v4, { nodeName: hostname() }));
  return slice('demo/all-ip-x', here, { service: 'all-ip' });
}

t.test('from the API of Kubernetes to packets, and back to nothing', async (t) => {
  const here = await lab(t);
  const kube = new ScriptProcess<Kube>(here.network, 'node', 'kube-main.ts');
  t.teardown(() => kube.end());
  const url = await kube.call('url');
  const others = service('demo/other', '10.96.0.9', { spec: { externalIPs: ['203.0.113.41'] } });
  await kube.call('upsert', 'services', others);

  const server = start(t, here, 'kpng', [
    'kube',
    `--server=${url}`,
    '--service-proxy-name=kpng-example',
    'to-api',
  ]);
  await server.line('Serving the API', { address: 'tcp://127.0.0.1:12090' });
  const json = start(t, here, 'kpng-json', []);
  const callout = start(t, here, 'kpng-callout', [], [`CALLOUT=${CALLOUT}`]);
  await callout.line('The first complete state is in place', { services: 0 });
  t.equal(json.stdout, '', 'a service of another proxy is none of ours');

  const spec = { externalIPs: [EXTERNAL] };
  const ours = service('demo/all-ip', '10.96.0.10', { labels: LABELS, spec });
  await kube.call('upsert', 'services', ours);
  await kube.call('upsert', 'endpointslices', pods('pod-a'));
  await callout.until(
    () => callout.stdout.includes(`${EXTERNAL} : ${ADDRESSES['pod-a'].v4}`),
    'the callout',
  );
  t.match(await here.client.ask(`${EXTERNAL}:8080`), /^pod-a /);
  t.match(await here.client.ask(`${EXTERNAL}:8080/UDP`), /^pod-a /);
  await here.podA.serve(`${ADDRESSES['pod-a'].v4}:7000/TCP`, 'pod-a');
  t.match(await here.client.ask(`${EXTERNAL}:7000`), /^pod-a /, 'any port');

  await kube.call('upsert', 'endpointslices', pods('pod-b'));
  await callout.until(
    () => callout.stdout.includes(`${EXTERNAL} : ${ADDRESSES['pod-b'].v4}`),
    'the other pod',
  );
  t.match(await here.client.ask(`${EXTERNAL}:8080`), /^pod-b /, 'another endpoint');

  const last = () => json.stdout.trim().split('\n').at(-1) ?? '';
  await json.until(
    () => json.stdout.endsWith('\n') && last().includes(ADDRESSES['pod-b'].v4),
    'the line of the other pod',
  );
  await kube.call('delete', 'services', 'demo/all-ip');
  t.ok(await eventually(async () => !(await here.ruleset()).includes('kpng-all-ip')));
  t.notMatch(await here.client.askInVain(`${EXTERNAL}:8080`), /^pod/, 'nothing is left');

  t.match(JSON.parse(last()), {
    Service: { Name: 'all-ip', IPs: { ExternalIPs: { V4: [EXTERNAL] } } },
    Endpoints: [{ IPs: { V4: [ADDRESSES['pod-b'].v4] }, Local: true }],
  });
  for (const cli of [callout, json, server]) {
    cli.kill('SIGTERM');
    t.equal((await cli.exited).code, 0);
  }
});
