/** What happens in the cluster of the soak test: all that can, over and over. */
import { endpoint, node, service, slice } from '../../test/support/fake-api/objects.ts';
import type { FakeApi } from '../../test/support/fake-api/server.ts';

/** The service that changes at the end of each burst, and shows that everything before has arrived. */
export const LAST = 'demo/last';

/** What is there before anything happens. */
export function settle(api: FakeApi, services: number): void {
  for (let i = 0; i < services; i += 1) {
    api.upsert('services', service(`demo/s${i}`, `10.96.${i >> 8}.${i & 255}`));
  }
  api.upsert('nodes', node('node-a', 'north'));
}

export interface Burst {
  /** The address that the last event gives to `LAST`. */
  readonly address: string;
  /** Events that come over watches. */
  readonly watched: number;
}

/** So many changes, of which some delete what is not there. */
export function burst(api: FakeApi, round: number, events: number, services: number): Burst {
  let watched = 0;
  for (let i = 0; i < events - 1; i += 1) {
    const n = round * events + i;
    const key = `demo/s${n % services}`;
    const address = `10.${(n >> 16) & 255}.${(n >> 8) & 255}.${n & 255}`;
    // Endpoints come, move and go; services and nodes change now and then.
    if (n % 10 === 0) {
      api.delete('endpointslices', `${key}-x`);
      continue;
    }
    watched += 1;
    if (n % 50 === 1) api.upsert('services', service(key, `10.97.${n & 15}.${n & 255}`));
    else if (n % 50 === 2) api.upsert('nodes', node(`node-${n & 7}`, `zone-${round & 1}`));
    else api.upsert('endpointslices', slice(`${key}-x`, [endpoint(address), endpoint('10.0.0.1')]));
  }
  // Some go over another connection, or over another list.
  if (round % 8 === 3) api.cut();
  const isCompacted = round % 8 === 7;
  if (isCompacted) {
    api.compact();
    api.cut();
  }
  const last = `10.99.${(round >> 8) & 255}.${round & 255}`;
  api.upsert('services', service(LAST, last));
  // The server's own memory of what it was asked is of no use here.
  api.requests.length = 0;
  // What happens before versions are lost comes with the lists.
  return { address: last, watched: isCompacted ? 0 : watched + 1 };
}
