import type { Node } from '../api/generated/globalv1/api.ts';
import { buildNode } from './build.ts';
import type { Collector } from './collector.ts';
import { schemaProblems } from './item.ts';
import type { RawFile } from './raw.ts';
import type { Reading } from './reading.ts';
import { validators } from './schema.ts';

/** Checks everything of a file but the service items, and returns the nodes. */
export function readNodes({ value, locate }: Reading, collector: Collector): Node[] {
  const errors = validators().file(value);
  if (errors.length > 0) {
    const problems = schemaProblems(errors, value, collector.maxProblems, locate);
    collector.addErrors(problems, errors.length);
    return [];
  }
  const nodes = ((value as RawFile).nodes ?? []).map(buildNode);
  const first = new Map<string, number>();
  for (const [index, { name }] of nodes.entries()) {
    const former = first.get(name);
    if (former === undefined) {
      first.set(name, index);
    } else {
      const segments = ['nodes', index, 'name'];
      const message = `duplicate node '${name}' (see nodes[${former}])`;
      collector.addErrors([{ offset: locate(segments, false), segments, message }]);
    }
  }
  return nodes;
}

/** The same map with an empty list in place of the service items, which are checked one by one. */
export function withoutItems(value: unknown): unknown {
  return { ...(value as object), services: [] };
}
