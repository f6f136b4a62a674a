/**
 * Paths: the keys under which the entries of a set travel.
 *
 * The local sets join their parts with `/`, the global ones join four store-key parts (namespace,
 * name, source, key) with `|`: services are `namespace|name||`, endpoints `namespace|service|source|hash`
 * and nodes `|name||`.
 */
/** `namespace/name`: path of a local service, and the key of a service everywhere in this program. */
export function servicePath(namespace: string, name: string): string {
  return `${namespace}/${name}`;
}

/**
 * Path order: unit by unit, `/` before everything else, the shorter first. So `ns/a` is followed by
 * its endpoints `ns/a/x` and only then by `ns/a-b`. Usable with `sort`.
 */
export function comparePaths(a: string, b: string): number {
  const length = Math.min(a.length, b.length);
  for (let i = 0; i < length; i++) {
    const left = a.charCodeAt(i);
    const right = b.charCodeAt(i);
    if (left === right) continue;
    if (left === SLASH) return -1;
    if (right === SLASH) return 1;
    return left - right;
  }
  return a.length - b.length;
}

const SLASH = 0x2f;
