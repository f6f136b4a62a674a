import ipaddr from 'ipaddr.js';
import type { Node } from '../api/generated/globalv1/api.ts';
import { pick } from './globs.ts';
import { type Json, type ObjectName, list, object, text } from './json.ts';
import type { Forwarded } from './map-service.ts';
import type { Resource } from './resource.ts';

const ZONE = 'topology.kubernetes.io/zone';

/** The message for a Node; only its metadata is used. */
export function mapNode({ name }: ObjectName, raw: Json, { labels, annotations }: Forwarded): Node {
  const metadata = object(raw['metadata']);
  const allLabels = object(metadata['labels']);
  return {
    name,
    labels: pick(allLabels, labels),
    annotations: pick(object(metadata['annotations']), annotations),
    // The zone counts even if its label is not passed on.
    topology: { node: name, zone: text(allLabels[ZONE]) },
  };
}

/** The taint that the cluster autoscaler sets before it removes a node. */
export const TO_BE_DELETED = 'ToBeDeletedByClusterAutoscaler';

/** Why a node should not get load-balancer traffic; undefined: it should. */
export type Ineligible = 'tainted' | 'deleted' | undefined;

/** The kept parts of the own node. */
export interface OwnNode {
  readonly ineligible: Ineligible;
  /** CIDR; empty where the network plugin does not use the field. */
  readonly podNetworks: readonly string[];
}

/** This node as a whole; of all others, only metadata is known. */
export function ownNode(name: string): Resource<OwnNode> {
  return {
    name: 'node',
    kind: 'Node',
    path: '/api/v1/nodes',
    labelSelector: '',
    fieldSelector: `metadata.name=${name}`,
    metadataOnly: false,
    decode: (_, raw) => ({ ineligible: ineligibleBy(raw), podNetworks: podNetworksOf(raw) }),
  };
}

function podNetworksOf(raw: Json): string[] {
  const texts = list(object(raw['spec'])['podCIDRs']).map(text);
  return texts.filter((each) => ipaddr.isValidCIDR(each));
}

/** By kube-proxy's rule: deleted, or tainted by the autoscaler. */
function ineligibleBy(raw: Json): Ineligible {
  if (text(object(raw['metadata'])['deletionTimestamp']) !== '') return 'deleted';
  const taints = list(object(raw['spec'])['taints']).map(object);
  return taints.some(({ key }) => key === TO_BE_DELETED) ? 'tainted' : undefined;
}
