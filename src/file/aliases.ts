import { isAlias, isCollection, isNode, isPair, visit, type Node } from 'yaml';
import type { YamlDocument } from './yaml.ts';

/** Whether a YAML value has an alias (`*name`) in it. */
export function hasAlias(node: Node): boolean {
  let found = false;
  visit(node, {
    Alias: () => {
      found = true;
      return visit.BREAK;
    },
  });
  return found;
}

/**
 * What is wrong with the aliases of a document: one that refers to nothing or to itself, or so many
 * of them, in each other, that the document is larger than `maxValues` values with them filled in.
 */
export function aliasProblem(
  document: YamlDocument,
  maxValues: number,
): { readonly offset: number; readonly message: string } | undefined {
  const anchors = new Map<string, Node>();
  /** How many values an anchored node is with its aliases filled in. */
  const sizes = new Map<Node, number>();
  let aliases = 0;
  let problem: { offset: number; message: string } | undefined;

  const sizeOf = (node: unknown): number => {
    if (isPair(node)) return sizeOf(node.key) + sizeOf(node.value);
    if (!isNode(node)) return 0;
    if (isAlias(node)) {
      aliases += 1;
      const target = anchors.get(node.source);
      const size = target === undefined ? undefined : sizes.get(target);
      if (size === undefined) {
        // An anchor that was met but has no size yet is around the alias.
        const what = target === undefined ? 'refers to nothing before it' : 'refers to itself';
        problem ??= { offset: node.range?.[0] ?? 0, message: `alias '*${node.source}' ${what}` };
      }
      return size ?? 0;
    }
    if (node.anchor !== undefined) anchors.set(node.anchor, node);
    let size = 1;
    if (isCollection(node)) for (const item of node.items) size += sizeOf(item);
    if (node.anchor !== undefined) sizes.set(node, size);
    return size;
  };

  const size = sizeOf(document.contents);
  if (problem === undefined && aliases > 0 && size > maxValues) {
    return { offset: 0, message: `more than ${maxValues} values after its aliases are filled in` };
  }
  return problem;
}
