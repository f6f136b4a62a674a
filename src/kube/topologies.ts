import type { TopologyInfo } from '../api/generated/globalv1/api.ts';

export type TopologyOf = (node: string, zone: string) => TopologyInfo;

/** More nodes than a cluster has. */
const MAX_SHARED = 20_000;

/**
 * Hands out one object for all endpoints of a node: they are most of what a large cluster's state
 * consists of. When there are too many, it begins anew.
 */
export function sharedTopologies(): TopologyOf {
  const shared = new Map<string, TopologyInfo>();
  return (node, zone) => {
    const key = `${node}\n${zone}`;
    let topology = shared.get(key);
    if (topology === undefined) {
      if (shared.size >= MAX_SHARED) shared.clear();
      topology = { node, zone };
      shared.set(key, topology);
    }
    return topology;
  };
}
