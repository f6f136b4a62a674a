/** The `kube` source as a command, against a fake API server. */
import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { startCli, type Cli } from '../support/cli.ts';
import { endpoint, node, service, slice } from '../support/fake-api/objects.ts';
import { startFakeApi, type FakeApi } from '../support/fake-api/server.ts';
import { shortDir } from '../support/short-dir.ts';
import { stateOf } from '../support/file-rig.ts';

function fill(api: FakeApi): void {
  api.upsert('nodes', node('node-a', 'north'), node('node-b', 'south'));
  api.upsert('services', service('demo/web', '10.96.0.10'));
  const endpoints = [endpoint('10.1.0.5'), endpoint('10.1.0.6', { nodeName: 'node-b' })];
  api.upsert('endpointslices', slice('demo/web-x', endpoints));
}

t.test('with to-userspace: a node about to be removed, and how long a change took', async (t) => {
  const api = await startFakeApi(t);
  fill(api);
  const line = `kube --server ${api.url} to-local to-userspace --portal none --node-name node-a`;
  const serve = ['--metrics-bind-address=127.0.0.1:0', '--healthz-bind-address=127.0.0.1:0'];
  const cli = startCli(t, [...line.split(' '), ...serve, '-v=2']);
  t.match(await cli.line('Connected to the Kubernetes API'), {
    server: api.url,
    config: '--server',
    user: 'system:anonymous',
  });
  const { url } = await cli.line('Serving health');
  const { url: metrics } = await cli.line('Serving metrics');
  await cli.line('The first complete state is in place');
  const status = async (probe: string): Promise<number> =>
    (await fetch(`${String(url)}/${probe}`)).status;
  t.equal(await status('healthz'), 200);
  const taints = [{ key: 'ToBeDeletedByClusterAutoscaler', effect: 'NoSchedule' }];
  api.upsert('nodes', { ...node('node-a', 'north'), spec: { taints } });
  await cli.line('Node is about to be removed; /healthz answers 503', { because: 'tainted' });
  t.equal(await status('healthz'), 503);
  t.match(await (await fetch(`${String(url)}/healthz`)).json(), { nodeEligible: false });
  t.same([await status('livez'), await status('readyz')], [200, 200]);
  api.upsert('nodes', node('node-a', 'north'));
  await cli.line('Node is eligible for load balancers again');
  t.equal(await status('healthz'), 200);

  await cli.line('Watching', { resource: 'endpointslices' });
  const changed = slice('demo/web-x', [endpoint('10.1.0.7')]);
  const key = 'endpoints.kubernetes.io/last-change-trigger-time';
  const annotations = { [key]: new Date(Date.now() + 1).toISOString() };
  api.upsert('endpointslices', { ...changed, metadata: { ...changed.metadata, annotations } });
  await cli.line('userspace syncProxyRules complete', { endpointsChanged: 1 });
  const page = await (await fetch(`${String(metrics)}/metrics`)).text();
  t.match(page, /^kubeproxy_network_programming_duration_seconds_count 1$/m);
  t.match(page, /^kubeproxy_sync_proxy_rules_endpoint_changes_total 1$/m);
  t.match(page, /^kubeproxy_sync_proxy_rules_service_changes_pending 0$/m);
});

/**
 * From the API of Kubernetes through one server and another one to backends, each a process of its own, with
 * the names and command lines of kpng: what comes out of the end is what goes in, byte for byte.
 */

const BIN = join(import.meta.dirname, '..', '..', 'bin');
const LABELS = { 'service.kubernetes.io/service-proxy-name': 'kpng-example' };

function start(t: Test, name: 'kpng' | 'kpng-json' | 'kpng-callout', ...args: string[]): Cli {
  return startCli(t, args, join(BIN, `${name}.js`));
}

/** The address that a server has announced. */
async function served(cli: Cli): Promise<string> {
  const { address } = await cli.line('Serving the API');
  return String(address).replace(/^(?:tcp|unix):\/\//, (scheme) =>
    scheme.startsWith('unix') ? 'unix:' : '',
  );
}

/** Both families, zones, hints, a policy, an endpoint on its way out, one without a pod, a service without any. */
function fillAll(api: FakeApi): void {
  api.upsert('nodes', node('node-a', 'north'), node('node-b', 'south'));
  const spec = { externalIPs: ['192.0.2.7'], internalTrafficPolicy: 'Local' };
  api.upsert('services', service('demo/web', '10.96.0.10', { labels: LABELS, spec }));
  api.upsert('services', service('demo/zz', '10.96.0.11', { labels: LABELS }));
  api.upsert('services', service('demo/other', '10.96.0.12'));
  const hints = { forZones: [{ name: 'south' }] };
  const v4 = [
    endpoint('10.1.0.5', { pod: 'web-0', zone: 'north' }),
    endpoint('10.1.0.6', { nodeName: 'node-b', zone: 'south', hints, pod: null }),
    endpoint('10.1.0.7', { conditions: { ready: false, serving: true, terminating: true } }),
  ];
  api.upsert('endpointslices', slice('demo/web-4', v4));
  const v6 = slice('demo/web-6', [endpoint('fd00::5', { pod: 'web-0', zone: 'north' })], {
    addressType: 'IPv6',
  });
  api.upsert('endpointslices', v6);
}

/** The lines of the last change set that has this service, which is reported last of all. */
function lastOf({ stdout }: Cli, name: string): string[] {
  const lines = stdout.split('\n').filter((line) => line !== '');
  const names = lines.map(
    (line) => (JSON.parse(line) as { Service: { Name: string } }).Service.Name,
  );
  const end = names.lastIndexOf(name);
  return end === -1 ? [] : lines.slice(names.lastIndexOf('web', end), end + 1);
}

t.test('kube, to-api, api, to-api: the same for backends near and far', async (t) => {
  const api = await startFakeApi(t);
  fillAll(api);
  const dir = shortDir(t);
  const got = join(dir, 'got');
  const program = join(dir, 'callout.sh');
  writeFileSync(
    program,
    `#!/bin/sh\ncat >"${got}.next" && mv "${got}.next" "${got}" && echo done\n`,
  );
  chmodSync(program, 0o755);

  const kube = ['kube', '--server', api.url, '--service-proxy-name=kpng-example'];
  const first = start(t, 'kpng', ...kube, 'to-api', '--listen', 'tcp://127.0.0.1:0');
  const near = await served(first);
  const second = start(t, 'kpng', 'api', '--api', near, 'to-api', '--listen', `unix://${dir}/s`);
  const far = await served(second);
  const onNode = ['--node-name', 'node-a'];
  const backends = {
    near: start(t, 'kpng-json', '--api', near, ...onNode),
    far: start(t, 'kpng-json', '--api', far, ...onNode),
    inProcess: start(t, 'kpng', 'api', '--api', far, 'to-local', 'to-json', ...onNode),
    callout: start(t, 'kpng-callout', '--api', far, ...onNode, '--callout', program),
    file: start(t, 'kpng', 'api', '--api', far, 'to-file', '--output', join(dir, 'state.yaml')),
  };
  const { near: nearJson, far: farJson, inProcess, callout, file } = backends;
  const callouts = (): number => callout.stdout.split('done').length - 1;

  /** Services and slices come over watches of their own, so that either may be reported first. */
  const agree = async (name: string, address: string): Promise<string[]> => {
    for (const cli of [nearJson, farJson, inProcess]) {
      const has = (): boolean => lastOf(cli, name).join('').includes(address);
      await cli.until(has, `${name} and ${address}`);
    }
    const lines = lastOf(nearJson, name);
    t.strictSame(lastOf(farJson, name), lines, `${name}: through both servers`);
    t.strictSame(lastOf(inProcess, name), lines, `${name}: worked out at the end`);
    return lines;
  };
  const [web = ''] = await agree('zz', '10.1.0.5');
  t.match(JSON.parse(web), {
    Service: { Name: 'web', IPs: { ExternalIPs: { V4: ['192.0.2.7'] } } },
    Endpoints: [
      // Of the others only external traffic may make use.
      { IPs: { V4: ['10.1.0.6'] }, Scopes: { External: true } },
      { IPs: { V4: ['10.1.0.5'], V6: ['fd00::5'] }, Local: true, Scopes: { Internal: true } },
    ],
  });
  await callout.until(() => callouts() > 0, 'the callout');
  t.strictSame(readFileSync(got, 'utf8').trim().split('\n'), lastOf(nearJson, 'zz'));

  api.upsert('endpointslices', slice('demo/web-4', [endpoint('10.1.0.8', { pod: 'web-1' })]));
  api.upsert('services', service('demo/zzz', '10.96.0.13', { labels: LABELS }));
  await agree('zzz', '10.1.0.8');
  await file.line('The first complete state is in place');
  for (const cli of [...Object.values(backends), second, first]) {
    cli.kill('SIGTERM');
    t.equal((await cli.exited).code, 0);
  }
  const written = stateOf(readFileSync(join(dir, 'state.yaml'), 'utf8'));
  t.strictSame([...written.services.keys()].sort(), ['demo/web', 'demo/zz', 'demo/zzz']);
});
