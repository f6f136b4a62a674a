import { isSeq, type Node, type YAMLSeq } from 'yaml';
import { hasAlias } from './aliases.ts';
import { parseJson } from './json.ts';
import type { Form } from './pieces.ts';
import type { LocalProblem, Segment } from './problem.ts';
import { locate, parseYaml, toPlain, type YamlDocument } from './yaml.ts';

/** Finds the offset of a value, or of its key, in the text that it was read from. */
export type Locator = (segments: readonly Segment[], atKey: boolean) => number;

/** A value and where its parts are written. */
export interface Reading {
  readonly ok: true;
  readonly value: unknown;
  readonly locate: Locator;
}

export type ReadResult = Reading | { readonly ok: false; readonly errors: readonly LocalProblem[] };

/**
 * Reads a piece of a file: a YAML list with one item, or a JSON value. Undefined when the text only has
 * a meaning together with the rest of its file; then nothing is known about it.
 */
export function readPiece(text: string, form: Form): ReadResult | undefined {
  if (form === 'json') return readJson(text);
  return readYaml(text, (list) => (list.items.length === 1 ? list.items[0] : undefined));
}

/** Reads a YAML list. Undefined when it is none, and when an alias in it may refer to anything. */
export function readList(text: string): ReadResult | undefined {
  return readYaml(text, (list) => list);
}

function readYaml(
  text: string,
  nodeOf: (list: YAMLSeq.Parsed) => Node | undefined,
): ReadResult | undefined {
  const yaml = parseYaml(text);
  if (!yaml.ok) return yaml;
  const { document } = yaml;
  const list = document.contents;
  const node = isSeq<Node>(list) ? nodeOf(list) : undefined;
  if (node === undefined || (text.includes('*') && hasAlias(node))) return undefined;
  return { ok: true, value: toPlain(node, document), locate: locatorIn(document, node) };
}

/** Beyond so many characters it is not found out where in a JSON text a value is. */
const MAX_LOCATED = 4 * 1024 * 1024;

/** Reads a JSON text; undefined when it is none. */
export function readJson(text: string): ReadResult | undefined {
  const json = parseJson(text);
  if (json.kind === 'notJson') return undefined;
  if (json.kind === 'repeatedKey') {
    const yaml = text.length > MAX_LOCATED ? undefined : parseYaml(text);
    if (yaml?.ok === false) return yaml;
    return {
      ok: false,
      errors: [{ offset: 0, segments: [], message: 'a key occurs twice in it' }],
    };
  }
  let locator: Locator | undefined;
  return {
    ok: true,
    value: json.value,
    // JSON is YAML, and seldom has anything to be located.
    locate: (segments, atKey) => {
      locator ??= text.length > MAX_LOCATED ? NOWHERE : yamlLocator(text);
      return locator(segments, atKey);
    },
  };
}

const NOWHERE: Locator = () => 0;

function yamlLocator(text: string): Locator {
  const yaml = parseYaml(text);
  const contents = yaml.ok ? yaml.document.contents : null;
  return yaml.ok && contents !== null ? locatorIn(yaml.document, contents) : NOWHERE;
}

/** Finds the parts of a node. */
export function locatorIn(document: YamlDocument, node: Node): Locator {
  return (segments, atKey) => locate(document, node, segments, atKey);
}
