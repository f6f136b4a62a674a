import type { Node } from '../api/generated/globalv1/api.ts';
import { pick } from './globs.ts';
import { object, text, type Json } from './json.ts';
import type { Forwarded } from './map-service.ts';
import type { ObjectName } from './meta.ts';

const ZONE = 'topology.kubernetes.io/zone';

/** The message for a Node; only its metadata is looked at. */
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
