import type { Node } from '../api/generated/globalv1/api.ts';

const ZONE_LABEL = 'topology.kubernetes.io/zone';

/** The zone in the node's own topology, or else in the label that Kubernetes puts on nodes. */
export function zoneOf(node: Node): string {
  const zone = node.topology?.zone ?? '';
  return zone === '' ? (node.labels[ZONE_LABEL] ?? '') : zone;
}
