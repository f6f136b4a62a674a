import {
  isAlias,
  isMap,
  isNode,
  isScalar,
  isSeq,
  parseDocument,
  type Document,
  type Node,
  type YAMLError,
  type YAMLMap,
} from 'yaml';
import { messageOf } from '../errors.ts';
import { positionAt, type LocalProblem, type Segment } from './problem.ts';
import { yamlMessage } from './yaml-message.ts';

export type YamlDocument = Document.Parsed;

/** A parsed text, or the first reasons why it could not be parsed. */
export type YamlResult =
  | { readonly ok: true; readonly document: YamlDocument }
  | { readonly ok: false; readonly errors: readonly LocalProblem[] };

/** One mistake in YAML often causes more errors behind it; only the first ones help. */
const MAX_SYNTAX_ERRORS = 3;

/**
 * Parses one YAML 1.2 document with text keys, each key once, and no tags but the standard ones.
 * Never throws, whatever the text.
 */
export function parseYaml(text: string): YamlResult {
  let document: YamlDocument;
  try {
    document = parseDocument(text, {
      prettyErrors: false,
      stringKeys: true,
      resolveKnownTags: false,
      // Not `silent`: that hides further documents.
      logLevel: 'error',
    });
  } catch (error) {
    // The parser recurses; a text that is nested deeper than its stack ends here.
    const message = `not readable as YAML: ${reason(error)}`;
    return { ok: false, errors: [{ offset: 0, segments: [], message }] };
  }
  const errors = [...document.errors, ...document.warnings];
  if (errors.length === 0) return { ok: true, document };
  return { ok: false, errors: firstOfLines(errors, text) };
}

/** What the parser says of a line after its first complaint is about the same mistake. */
function firstOfLines(errors: readonly YAMLError[], text: string): LocalProblem[] {
  const lines = new Set<number>();
  const problems: LocalProblem[] = [];
  for (const error of errors) {
    const [offset] = error.pos;
    const { line } = positionAt(text, offset);
    if (lines.has(line)) continue;
    lines.add(line);
    problems.push({ offset, segments: [], message: yamlMessage(error, text) });
    if (problems.length === MAX_SYNTAX_ERRORS) break;
  }
  return problems;
}

function reason(error: unknown): string {
  if (error instanceof RangeError) return 'nested too deeply';
  return messageOf(error);
}

/** The node as plain values. Aliases must have been bounded before (see aliases.ts). */
export function toPlain(node: Node, document: YamlDocument): unknown {
  return node.toJS(document, { maxAliasCount: -1 });
}

/**
 * Offset of the value that the segments lead to, or of its key. When the way ends early, because
 * something is missing, it is the offset of the last thing that is there.
 */
export function locate(
  document: YamlDocument,
  root: Node,
  segments: readonly Segment[],
  atKey: boolean,
): number {
  let node: unknown = root;
  let offset = startOf(root, 0);
  for (const [index, segment] of segments.entries()) {
    if (isAlias(node)) node = node.resolve(document);
    let next: unknown;
    if (isMap(node)) {
      const pair = node.items.find(({ key }) => isScalar(key) && key.value === segment);
      if (pair === undefined) break;
      // A missing value is found at its key.
      if (isNode(pair.key)) offset = startOf(pair.key, offset);
      if (atKey && index === segments.length - 1) return offset;
      next = pair.value;
    } else if (isSeq(node) && typeof segment === 'number') {
      next = node.items[segment];
    }
    if (!isNode(next)) break;
    node = next;
    if (!isEmptyScalar(next)) offset = startOf(next, offset);
  }
  return offset;
}

/** Whether a map in block style has this key at this offset, without a value. */
export function hasEmptyKey(map: YAMLMap, name: string, offset: number): boolean {
  if (map.flow === true) return false;
  const pair = map.items.find(({ key }) => isScalar(key) && key.range?.[0] === offset);
  if (pair === undefined || !isScalar(pair.key) || pair.key.value !== name) return false;
  return pair.value === null || (isScalar(pair.value) && pair.value.value === null);
}

function startOf(node: Node, fallback: number): number {
  return node.range?.[0] ?? fallback;
}

/** A value that is not written at all, as in `key:`. Its offset is that of what follows. */
function isEmptyScalar(node: Node): boolean {
  return isScalar(node) && node.value === null && node.range?.[0] === node.range?.[1];
}
