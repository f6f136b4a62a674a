import { isAlias, isMap, isScalar, isSeq, type Node, type YAMLMap } from 'yaml';
import type { Node as ClusterNode } from '../api/generated/globalv1/api.ts';
import { aliasProblem, hasAlias } from './aliases.ts';
import { buildNode } from './build.ts';
import { Collector, type Collected } from './collector.ts';
import { parseChunk, readItem, schemaProblems, type Item, type Locator } from './item.ts';
import { DEFAULT_FILE_LIMITS, type FileLimits } from './limits.ts';
import { positionAt, type LocalProblem } from './problem.ts';
import type { RawFile } from './raw.ts';
import { validators } from './schema.ts';
import { splitServices, type Split } from './split.ts';
import { locate, parseYaml, toPlain, type YamlDocument } from './yaml.ts';

/** Service items by their text, from one parse to the next. */
export type ItemCache = ReadonlyMap<string, Item>;

export type ParseResult = Collected & {
  /** For the next parse: a service item whose text is in it is not parsed again. */
  readonly cache: ItemCache;
  /** How many service items were parsed, not taken from the cache. */
  readonly parsedItems: number;
};

export interface ParseOptions {
  readonly limits?: FileLimits | undefined;
  /** Of a former parse with the same limits. */
  readonly cache?: ItemCache | undefined;
}

/** Parses a state file. Never throws, whatever the text. */
export function parseStateFile(text: string, options: ParseOptions = {}): ParseResult {
  const steps = parseSteps(text, options);
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

/** The same as `parseStateFile`, in steps: the caller may do something else after each of them. */
export function* parseSteps(
  text: string,
  { limits = DEFAULT_FILE_LIMITS, cache = NO_CACHE }: ParseOptions = {},
): Generator<void, ParseResult, void> {
  const split = splitServices(text);
  const inPieces = split === undefined ? undefined : yield* parsePieces(split, limits, cache);
  return inPieces ?? parseWhole(text, limits);
}

const NO_CACHE: ItemCache = new Map();
const EMPTY_FILE =
  'the file is empty, perhaps not written to its end; `services: []` means no services';

/**
 * Parses the file service by service. Undefined when it turns out that the file cannot be
 * understood in pieces.
 */
function* parsePieces(
  split: Split,
  limits: FileLimits,
  cache: ItemCache,
): Generator<void, ParseResult | undefined, void> {
  const yaml = parseYaml(split.rest);
  if (!yaml.ok) return undefined;
  const root = yaml.document.contents;
  if (!isMap(root) || !hasEmptyServicesAt(root, split.servicesAt) || hasAlias(root)) {
    return undefined;
  }
  const collector = new Collector(limits);
  const plain = withoutItems(toPlain(root, yaml.document));
  const nodes = readNodes(plain, collector, (segments, atKey) => {
    const at = positionAt(split.rest, locate(yaml.document, root, segments, atKey));
    return at.line > split.cutAfterLine ? { ...at, line: at.line + split.cutLines } : at;
  });
  const nextCache = new Map<string, Item>();
  let parsedItems = 0;
  for (const chunk of split.items) {
    let item = cache.get(chunk.text);
    if (item === undefined) {
      item = parseChunk(chunk.text, limits.maxProblems);
      if (item === undefined) return undefined;
      parsedItems += 1;
    }
    nextCache.set(chunk.text, item);
    collector.addItem(item, chunk.linesBefore);
    yield;
  }
  return { ...collector.result(nodes), cache: nextCache, parsedItems };
}

/** Whether a map in block style has the key `services` right there, without a value. */
function hasEmptyServicesAt(root: YAMLMap, offset: number): boolean {
  if (root.flow === true) return false;
  const pair = root.items.find(({ key }) => isScalar(key) && key.range?.[0] === offset);
  if (pair === undefined || !isScalar(pair.key) || pair.key.value !== 'services') return false;
  return pair.value === null || (isScalar(pair.value) && pair.value.value === null);
}

/** Parses the file as one YAML document. */
function parseWhole(text: string, limits: FileLimits): ParseResult {
  const collector = new Collector(limits);
  const fail = (problems: readonly LocalProblem[]): ParseResult => {
    collector.addErrors(problems);
    return { ...collector.result([]), cache: NO_CACHE, parsedItems: 0 };
  };
  const yaml = parseYaml(text);
  if (!yaml.ok) return fail(yaml.errors);
  const { document } = yaml;
  const root = document.contents;
  if (root === null || (isScalar(root) && root.value === null)) {
    return fail([problemAt(text, 0, EMPTY_FILE)]);
  }
  if (!isMap(root)) {
    return fail([problemAt(text, root.range[0], 'a state file is a map with the key `services`')]);
  }
  const alias = aliasProblem(document, limits.maxAliasedValues);
  if (alias !== undefined) return fail([problemAt(text, alias.offset, alias.message)]);
  const plain = toPlain(root, document);
  const values = (plain as { services?: unknown }).services;
  const rest = Array.isArray(values) ? withoutItems(plain) : plain;
  const nodes = readNodes(rest, collector, (segments, atKey) =>
    positionAt(text, locate(document, root, segments, atKey)),
  );
  const items = itemNodes(document, root);
  if (Array.isArray(values)) {
    for (const [index, value] of values.entries()) {
      const node = items[index] ?? root;
      collector.addItem(readItem(document, node, value, text, limits.maxProblems), 0);
    }
  }
  return { ...collector.result(nodes), cache: NO_CACHE, parsedItems: items.length };
}

function itemNodes(document: YamlDocument, root: YAMLMap): readonly Node[] {
  const list: unknown = root.get('services', true);
  const resolved = isAlias(list) ? list.resolve(document) : list;
  return isSeq<Node>(resolved) ? resolved.items : [];
}

function problemAt(text: string, offset: number, message: string): LocalProblem {
  return { at: positionAt(text, offset), segments: [], message };
}

/** The same map with an empty list in place of the service items, which are checked one by one. */
function withoutItems(plain: unknown): unknown {
  return { ...(plain as object), services: [] };
}

/** Checks everything but the service items, and returns the nodes. */
function readNodes(value: unknown, collector: Collector, locator: Locator): ClusterNode[] {
  const errors = validators().file(value);
  if (errors.length > 0) {
    collector.addErrors(
      schemaProblems(errors, value, collector.maxProblems, locator),
      errors.length,
    );
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
      collector.addErrors([{ at: locator(segments, false), segments, message }]);
    }
  }
  return nodes;
}
