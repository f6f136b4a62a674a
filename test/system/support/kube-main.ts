/** Runs on a machine of a test network: a Kubernetes API that does as scripted. */
import type { KubeObject, Resource } from '../../support/fake-api/objects.ts';
import { FakeApi } from '../../support/fake-api/server.ts';
import { serveLines } from './machine.ts';

const api = new FakeApi({});
await api.start();

const handlers = {
  url: () => api.url,
  upsert: (resource: Resource, object: KubeObject) => api.upsert(resource, object),
  /** `key`: `namespace/name`. */
  delete: (resource: Resource, key: string) => api.delete(resource, key),
};

export type Kube = typeof handlers;

serveLines(handlers);
