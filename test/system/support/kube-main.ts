/** Runs on a machine of a test network: a Kubernetes API that does as scripted. */
import type { KubeObject, Resource } from '../../support/fake-api/objects.ts';
import { FakeApi } from '../../support/fake-api/server.ts';
import { serveLines } from './machine.ts';

export type KubeRequest =
  | { do: 'url' }
  | { do: 'upsert'; resource: Resource; object: KubeObject }
  /** `key`: `namespace/name`. */
  | { do: 'delete'; resource: Resource; key: string };

const api = new FakeApi({});
const started = api.start();

serveLines(async (request: KubeRequest) => {
  await started;
  if (request.do === 'url') return api.url;
  if (request.do === 'upsert') api.upsert(request.resource, request.object);
  else api.delete(request.resource, request.key);
  return undefined;
});
