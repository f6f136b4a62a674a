/** What the API of a small cluster has, and what our source makes of it. */
import { endpoint, node, service, slice } from './fake-api/objects.ts';
import type { FakeApi } from './fake-api/server.ts';

/** After `fill`, as a rig's `settled` wants it. */
export const STATE = ['demo/web 10.96.0.10: 10.1.0.5@node-a', 'node node-a north'];

/** After `addApi`, too. */
export const MORE = ['demo/api 10.96.0.11: ', ...STATE];

/** A service with one endpoint, and the node that it is on. */
export function fill(api: FakeApi): void {
  api.upsert('nodes', node('node-a', 'north'));
  api.upsert('services', service('demo/web', '10.96.0.10'));
  api.upsert('endpointslices', slice('demo/web-x', [endpoint('10.1.0.5')]));
}

/** A further service. */
export function addApi(api: FakeApi): void {
  api.upsert('services', service('demo/api', '10.96.0.11'));
}

/** How often a resource was listed. */
export function lists(api: FakeApi, resource = 'services'): number {
  return api.requests.filter((seen) => seen.verb === 'list' && seen.resource === resource).length;
}
