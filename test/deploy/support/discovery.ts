/** An API server as far as `kubectl create --dry-run=client` asks one: which kinds there are. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Test } from 'tap';

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
export async function serveDiscovery(t: Test): Promise<string> {
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
