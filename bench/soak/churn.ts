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

/** So many events, of which the last one gives `LAST` the address that is returned. */
export function burst(api: FakeApi, round: number, events: number, services: number): string {
  for (let i = 0; i < events - 1; i += 1) {
    const n = round * events + i;
    const key = `demo/s${n % services}`;
    const address = `10.${(n >> 16) & 255}.${(n >> 8) & 255}.${n & 255}`;
    // Endpoints come, move and go; services and nodes change now and then.
    if (n % 10 === 0) api.delete('endpointslices', `${key}-x`);
    else if (n % 50 === 1) api.upsert('services', service(key, `10.97.${n & 15}.${n & 255}`));
    else if (n % 50 === 2) api.upsert('nodes', node(`node-${n & 7}`, `zone-${round & 1}`));
    else api.upsert('endpointslices', slice(`${key}-x`, [endpoint(address), endpoint('10.0.0.1')]));
  }
  // Some go over another connection, or over another list.
  if (round % 8 === 3) api.cut();
  if (round % 8 === 7) {
    api.compact();
    api.cut();
  }
  const last = `10.99.${(round >> 8) & 255}.${round & 255}`;
  api.upsert('services', service(LAST, last));
  // The server's own memory of what it was asked is of no use here.
  api.requests.length = 0;
  return last;
}
