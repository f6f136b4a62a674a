/** Runs beside kube-proxy: the Kubernetes API of our tests, with the one service. Prints where it is. */
import { endpoints, node, service } from '../../../test/support/fake-api/objects.ts';
import { FakeApi } from '../../../test/support/fake-api/server.ts';
import { answer, settings } from '../../support/worker.ts';
import { SERVER_ADDRESS } from '../network.ts';
import { SERVICE_PORTS } from '../ports.ts';

export interface KubeProxyApiSettings {
  readonly nodeName: string;
  readonly nodeAddress: string;
  /** The cluster IP. */
  readonly service: string;
}

export interface KubeProxyApiAnswer {
  readonly url: string;
}

const given = settings() as KubeProxyApiSettings;
const key = 'bench/server';
const api = new FakeApi({});
api.upsert('nodes', node(given.nodeName, '', given.nodeAddress));
api.upsert(
  'endpoints',
  endpoints(
    key,
    [SERVER_ADDRESS],
    SERVICE_PORTS.map(({ name, protocol, port }) => ({ name, protocol, port })),
  ),
);
api.upsert(
  'services',
  service(key, given.service, {
    spec: { ports: [...SERVICE_PORTS] },
  }),
);
await api.start();
answer({ url: api.url } satisfies KubeProxyApiAnswer);
