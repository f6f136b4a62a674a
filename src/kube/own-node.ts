import { list, object, text, type Json } from './json.ts';
import { nameOf } from './meta.ts';
import type { Resource } from './resource.ts';

/** The cluster autoscaler taints nodes so before it removes them. */
export const TO_BE_DELETED = 'ToBeDeletedByClusterAutoscaler';

/** Why a node should get no traffic from load balancers any more; undefined: it may. */
export type Ineligible = 'tainted' | 'deleted' | undefined;

/** One node as a whole, of which all others are known by their metadata only. */
export function ownNode(name: string): Resource<{ readonly ineligible: Ineligible }> {
  return {
    name: 'node',
    path: '/api/v1/nodes',
    labelSelector: '',
    fieldSelector: `metadata.name=${name}`,
    metadataOnly: false,
    keyOf: (raw) => nameOf('Node', raw, false).name,
    decode: (raw) => ({ ineligible: ineligibleBy(raw) }),
  };
}

/** By kube-proxy's rule: deleted, or tainted by the autoscaler. */
function ineligibleBy(raw: Json): Ineligible {
  if (text(object(raw['metadata'])['deletionTimestamp']) !== '') return 'deleted';
  const taints = list(object(raw['spec'])['taints']).map(object);
  return taints.some(({ key }) => key === TO_BE_DELETED) ? 'tainted' : undefined;
}
