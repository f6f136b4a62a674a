/** An API server as far as `kubectl create --dry-run=client` asks one: which kinds there are. */
import { readdirSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { readRendered, RENDERINGS } from '../support/rendered.ts';
import { missing, run, type Outcome } from '../support/toolbox.ts';

interface Resource {
  readonly name: string;
  readonly kind: string;
  readonly namespaced: boolean;
  readonly singularName: string;
  readonly verbs: readonly string[];
}
const of = (kind: string, name: string, namespaced: boolean): Resource => ({
  kind,
  name,
  namespaced,
  singularName: '',
  verbs: ['create', 'get', 'list'],
});

/** Kinds by version of their group, as a cluster with the Prometheus operator has them. */
const KINDS: Readonly<Record<string, readonly Resource[]>> = {
  v1: [of('ServiceAccount', 'serviceaccounts', true), of('ConfigMap', 'configmaps', true)],
  'apps/v1': [of('DaemonSet', 'daemonsets', true)],
  'rbac.authorization.k8s.io/v1': [
    of('ClusterRole', 'clusterroles', false),
    of('ClusterRoleBinding', 'clusterrolebindings', false),
  ],
  'scheduling.k8s.io/v1': [of('PriorityClass', 'priorityclasses', false)],
  'monitoring.coreos.com/v1': [
    of('PodMonitor', 'podmonitors', true),
    of('PrometheusRule', 'prometheusrules', true),
  ],
};

function answer(path: string): unknown {
  if (path === '/api') return { kind: 'APIVersions', versions: ['v1'] };
  if (path === '/apis') {
    const groups = Object.keys(KINDS)
      .filter((groupVersion) => groupVersion.includes('/'))
      .map((groupVersion) => {
        const [name, version] = groupVersion.split('/');
        const versions = [{ groupVersion, version }];
        return { name, versions, preferredVersion: versions[0] };
      });
    return { kind: 'APIGroupList', apiVersion: 'v1', groups };
  }
  const groupVersion = path.replace(/^\/apis?\//, '');
  const resources = KINDS[groupVersion];
  if (resources === undefined) return undefined;
  return {
    kind: 'APIResourceList',
    apiVersion: 'v1',
    groupVersion,
    resources,
  };
}

/** Serves until the test is over; returns the URL. */
async function serveDiscovery(t: Test): Promise<string> {
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url ?? '/', 'http://localhost');
    const body = request.method === 'GET' ? answer(pathname) : undefined;
    response.writeHead(body === undefined ? 404 : 200, { 'content-type': 'application/json' });
    response.end(JSON.stringify(body ?? { kind: 'Status', status: 'Failure', code: 404 }));
  });
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** `kubectl create --dry-run=client`: kubectl can read each manifest, knows its kinds, and names each object once. */

const WINDOWS = join(import.meta.dirname, '..', '..', '..', 'deploy', 'windows');
const KUBECTL = ['kubectl-1.32', 'kubectl-1.35'] as const;
const skip = missing(...KUBECTL);

for (const name of KUBECTL) {
  const create = (
    url: string,
    folder: string,
    args: readonly string[],
    input?: string,
  ): Promise<Outcome> => {
    const where = ['--server', url, '--cache-dir', folder, '--kubeconfig', '/dev/null'];
    const how = ['create', '--dry-run=client', '--validate=false', '--output=name'];
    return run(name, [...where, ...how, ...args], input === undefined ? {} : { input });
  };

  t.test(`${name} would create everything`, { skip }, async (t) => {
    const url = await serveDiscovery(t);
    const folder = t.testdir();
    for (const rendering of RENDERINGS) {
      const { text: input, manifests } = readRendered(rendering);
      const { code, stdout, text } = await create(url, folder, ['-f', '-'], input);
      t.equal(code, 0, `${rendering.name}: ${text}`);
      const names = stdout.trim().split('\n');
      t.equal(new Set(names).size, manifests.length, rendering.name);
    }
    for (const file of readdirSync(WINDOWS).filter((each) => each.endsWith('.yaml'))) {
      const { code, text } = await create(url, folder, ['-f', join(WINDOWS, file)]);
      t.equal(code, 0, `${file}: ${text}`);
    }
    const bad = 'apiVersion: apps/v1beta1\nkind: DaemonSet\nmetadata:\n  name: x\n';
    const refused = await create(url, folder, ['-f', '-'], bad);
    t.not(refused.code, 0, 'and a version that is gone is refused');
    t.match(refused.text, /no matches for kind "DaemonSet" in version "apps\/v1beta1"/);
  });
}
