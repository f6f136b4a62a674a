import type { Test } from 'tap';
import { endpoint, service, slice } from './fake-api/objects.ts';
import { startFakeApi } from './fake-api/server.ts';
import type { PageRun } from './run-page.ts';

/** The API server that docs/reference/kpng.md talks to: one Service for its proxy, and one for others. */
export async function clusterOfOne(t: Test): Promise<Omit<PageRun, 'page'>> {
  const api = await startFakeApi(t);
  const labels = { 'service.kubernetes.io/service-proxy-name': 'kpng-example' };
  const port = { name: 'all', protocol: 'TCP', port: 1 };
  const spec = { externalIPs: ['192.0.2.40'], ports: [{ ...port, targetPort: 1 }] };
  api.upsert('services', service('default/all-ip', '10.96.0.20', { labels, spec }));
  api.upsert('services', service('default/kubernetes', '10.96.0.1'));
  const pod = endpoint('10.244.1.7', { nodeName: 'n', pod: 'all-ip' });
  api.upsert('endpointslices', slice('default/all-ip-x', [pod], { ports: [port] }));
  return {
    env: { KPNG_SERVER: api.url, KPNG_NODE_NAME: 'n', KPNG_ADMIN_SOCKET: '' },
    ports: { 39827: Number(new URL(api.url).port) },
  };
}
