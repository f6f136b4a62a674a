import { BenchNetwork, ENDPOINT_ADDRESSES } from '../portals/network.ts';
import type { Place } from './stage.ts';

/** A network namespace of its own for scenarios with packet rules. */
export function openNetwork(): Place & { remove(): void } {
  const network = new BenchNetwork({ local: false });
  return {
    inside: network.command(),
    controlIp: '10.96.0.1',
    endpointIp: ENDPOINT_ADDRESSES[0],
    remove: () => network.remove(),
  };
}
