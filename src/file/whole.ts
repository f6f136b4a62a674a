import { isAlias, isMap, isScalar, isSeq, type Node, type YAMLMap } from 'yaml';
import type { Node as ClusterNode } from '../api/generated/globalv1/api.ts';
import { formatBytes } from '../util/bytes.ts';
import { aliasProblem } from './aliases.ts';
import type { Collector } from './collector.ts';
import { readItem } from './item.ts';
import { parseJson } from './json.ts';
import type { FileLimits } from './limits.ts';
import { readNodes, withoutItems } from './nodes.ts';
import type { LocalProblem } from './problem.ts';
import { locatorIn } from './reading.ts';
import { parseYaml, toPlain, type YamlDocument } from './yaml.ts';

const EMPTY_FILE =
  'the file is empty, perhaps not written to its end; `services: []` means no services';

/** What a file holds beside its services, which went to the collector. */
export interface Whole {
  readonly nodes: readonly ClusterNode[];
  readonly items: number;
}

/** Parses a file that cannot be cut into pieces, as one YAML document. */
export function parseWhole(text: string, limits: FileLimits, collector: Collector): Whole {
  const fail = (...problems: readonly LocalProblem[]): Whole => {
    collector.addErrors(problems);
    return { nodes: [], items: 0 };
  };
  if (text.length > limits.maxTreeChars) return fail(tooLarge(text, limits.maxTreeChars));
  const yaml = parseYaml(text);
  if (!yaml.ok) return fail(...yaml.errors);
  const { document } = yaml;
  const root = document.contents;
  if (root === null || (isScalar(root) && root.value === null)) return fail(about(0, EMPTY_FILE));
  if (!isMap(root)) {
    return fail(about(root.range[0], 'a state file is a map with the key `services`'));
  }
  const alias = aliasProblem(document, limits.maxAliasedValues);
  if (alias !== undefined) return fail(about(alias.offset, alias.message));
  const plain = toPlain(root, document);
  const values = (plain as { services?: unknown }).services;
  const locate = locatorIn(document, root);
  const rest = Array.isArray(values) ? withoutItems(plain) : plain;
  const nodes = readNodes({ ok: true, value: rest, locate }, collector);
  const items = itemNodes(document, root);
  if (Array.isArray(values)) {
    for (const [index, value] of values.entries()) {
      const node = items[index] ?? root;
      const inItem = locatorIn(document, node);
      const item = readItem({ ok: true, value, locate: inItem }, limits.maxProblems);
      collector.addItem(item, 0, () => inItem(['service', 'name'], false));
    }
  }
  return { nodes, items: items.length };
}

function itemNodes(document: YamlDocument, root: YAMLMap): readonly Node[] {
  const list: unknown = root.get('services', true);
  const resolved = isAlias(list) ? list.resolve(document) : list;
  return isSeq<Node>(resolved) ? resolved.items : [];
}

/** Most likely a file that is cut into pieces as a rule, but has a mistake. */
function tooLarge(text: string, maxTreeChars: number): LocalProblem {
  if (/^\s*\{/.test(text)) {
    const json = parseJson(text);
    if (json.kind === 'notJson') return about(json.offset ?? 0, `no JSON: ${json.reason}`);
  }
  const limit = formatBytes(maxTreeChars);
  const forms = 'must be JSON, or have its services in block style and no aliases';
  return about(0, `a file of more than ${limit} characters ${forms}`);
}

function about(offset: number, message: string): LocalProblem {
  return { offset, segments: [], message };
}
