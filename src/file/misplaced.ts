import type { SchemaPart } from './schema.ts';

/**
 * Where a key belongs that is unknown in `parent` but known one level below or above it, as it
 * happens by wrong indentation: `under 'ips'`, `beside 'service'`. Undefined: nowhere near.
 */
export function rightPlace(key: string, parent: SchemaPart, root: SchemaPart): string | undefined {
  const below = Object.entries(parent.properties ?? {})
    .filter(([, part]) => has(resolve(part, root), key))
    .map(([name]) => `'${name}'`);
  if (below.length > 0) return `under ${below.join(' or ')}`;
  for (const object of [root, ...Object.values(root.definitions ?? {})]) {
    if (!has(object, key)) continue;
    for (const [name, part] of Object.entries(object.properties ?? {})) {
      if (resolve(part, root) === parent) return `beside '${name}'`;
    }
  }
  return undefined;
}

function has(part: SchemaPart | undefined, key: string): boolean {
  return part?.properties !== undefined && Object.hasOwn(part.properties, key);
}

/** The map that a part of the schema stands for, or that its list has as items. */
function resolve(part: SchemaPart, root: SchemaPart): SchemaPart | undefined {
  if (part.$ref !== undefined) return root.definitions?.[part.$ref.replace('#/definitions/', '')];
  return part.items === undefined ? part : resolve(part.items, root);
}
