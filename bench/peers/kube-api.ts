/** Runs beside kube-proxy: the Kubernetes API of our tests, with the services that are measured. */
import { node, service } from '../../test/support/fake-api/objects.ts';
import { FakeApi } from '../../test/support/fake-api/server.ts';
import { answerRequests } from '../support/dialogue.ts';

export const KUBE_API = import.meta.filename;

/** A Service with its endpoints. */
export interface KubeService {
  /** `namespace/name`. */
  readonly key: string;
  /** The cluster IP. */
  readonly address: string;
  /** Default: `http`, port 80, target port 8080. */
  readonly ports?: readonly {
    readonly name: string;
    readonly protocol: string;
    readonly port: number;
  }[];
  readonly endpoints: readonly string[];
}

/** But for the first one, each resolves with when it was done or was so: milliseconds on the system's monotonic clock. */
export type KubeApiRequest =
  /** Resolves with the server's address. */
  | {
      readonly do: 'start';
      readonly nodeName: string;
      readonly nodeAddress: string;
      readonly services: readonly KubeService[];
    }
  | { readonly do: 'put'; readonly service: KubeService; readonly endpointsOnly?: boolean }
  | { readonly do: 'remove'; readonly key: string }
  /** When services and endpoints had both been asked for. */
  | { readonly do: 'askedAt' };

const api = new FakeApi({});

/** The service last: a client that sees it knows its endpoints. */
function put({ key, address, ports, endpoints: addresses }: KubeService, endpointsOnly = false) {
  // The older object of a service; it has no subset without addresses.
  const [namespace = '', name = ''] = key.split('/');
  const subset = {
    addresses: addresses.map((ip) => ({ ip, nodeName: 'node-a' })),
    ports: ports ?? [{ name: 'http', port: 8080, protocol: 'TCP' }],
  };
  const subsets = addresses.length > 0 && { subsets: [subset] };
  api.upsert('endpoints', { metadata: { namespace, name }, ...subsets });
  if (endpointsOnly) return;
  api.upsert('services', service(key, address, ports && { spec: { ports: [...ports] } }));
}

function askedAt(): number {
  const first = ['services', 'endpoints'].map(
    (resource) =>
      api.requests.find((seen) => seen.verb === 'list' && seen.resource === resource)?.at ?? 0,
  );
  return performance.now() - Math.max(...first);
}

if (import.meta.main) {
  answerRequests(async (request: KubeApiRequest) => {
    if (request.do === 'start') {
      api.upsert('nodes', node(request.nodeName, '', request.nodeAddress));
      for (const each of request.services) put(each);
      await api.start();
      return api.url;
    }
    const at = Number(process.hrtime.bigint()) / 1e6;
    if (request.do === 'askedAt') return at - askedAt();
    if (request.do === 'put') put(request.service, request.endpointsOnly);
    else {
      api.delete('services', request.key);
      api.delete('endpoints', request.key);
    }
    return at;
  });
}
