/** Runs in the namespace: the Kubernetes API server of our tests, with the services that are measured. */
import { FakeApi } from '../../test/support/fake-api/server.ts';
import { endpoints, node, service } from '../../test/support/fake-api/objects.ts';
import { answerRequests } from '../support/dialogue.ts';
import { NODE_NAME, type ApiRequest } from './api-requests.ts';
import { now } from './clock.ts';
import { ENDPOINT_ADDRESSES, NODE_ADDRESS } from './network.ts';
import { NAMESPACE, serviceAddress, serviceName } from './services.ts';
import type { ChangeKind, Moment } from './subject.ts';

const api = new FakeApi({});

answerRequests(async (request: ApiRequest) => {
  switch (request.do) {
    case 'open':
      api.upsert('nodes', node(NODE_NAME, '', NODE_ADDRESS));
      for (let n = 0; n < request.services; n += 1) {
        put(n, ENDPOINT_ADDRESSES);
      }
      await api.start();
      return api.url;
    case 'askedAt':
      return askedAt();
    case 'change':
      return change(request.kind, request.n);
    default:
      return request satisfies never;
  }
});

/** The service last: a client that sees it knows its endpoints. */
function put(n: number, addresses: readonly string[]): void {
  const key = `${NAMESPACE}/${serviceName(n)}`;
  api.upsert('endpoints', endpoints(key, addresses));
  api.upsert('services', service(key, serviceAddress(n)));
}

function askedAt(): Moment {
  const first = (['services', 'endpoints'] as const).map(
    (resource) =>
      api.requests.find((seen) => seen.verb === 'list' && seen.resource === resource)?.at ?? 0,
  );
  return now() - (performance.now() - Math.max(...first));
}

/** Makes a change and returns when. */
function change(kind: ChangeKind, n: number): Moment {
  const key = `${NAMESPACE}/${serviceName(n)}`;
  const at = now();
  if (kind === 'removed') {
    api.delete('services', key);
    api.delete('endpoints', key);
  } else if (kind === 'added') {
    put(n, ENDPOINT_ADDRESSES.slice(0, 1));
  } else {
    api.upsert('endpoints', endpoints(key, ENDPOINT_ADDRESSES));
  }
  return at;
}
