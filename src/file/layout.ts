/**
 * Splits the text of a state file. An unchanged service item is not parsed again, so JSON and YAML in block style are
 * split into their items first; a large file never exists as one value. Other YAML is parsed as a whole.
 */
import { formatBytes } from '../util/bytes.ts';
import {
  type Segment,
  type YamlLocator,
  type YamlProblem,
  locatorIn,
  parseYaml,
} from '../util/yaml.ts';
import type { FileLimits } from './limits.ts';

export type ItemResult = { readonly value: unknown } | { readonly problem: YamlProblem };

export interface Layout {
  /** The file without its service items: their list, if any, is empty. */
  readonly rest: unknown;
  readonly count: number;
  /** Equal for equal items. */
  textOf(item: number): string;
  /** Undefined if the file cannot be split after all. */
  read(item: number): ItemResult | undefined;
  readonly isJson: boolean;
  /** Offset in the file of a part of an item, or of the rest if there is no item. */
  locate(item: number | undefined, segments: readonly Segment[], atKey?: boolean): number;
  startOf(item: number): number;
}

/** Splits JSON, or YAML in block style, into pieces. Undefined for text in another form. */
export function layOutPieces(text: string, limits: FileLimits): Layout | undefined {
  const isJson = JSON_START.test(text);
  const split = isJson ? splitJson(text, limits.maxDepth) : splitServices(text);
  if (split === undefined) return undefined;
  const rest = isJson ? parseJson(split.rest, limits.maxDepth) : readRest(split, limits);
  if (!isMap(rest)) return undefined;
  const textOf = (item: number): string => split.items[item]?.text ?? '';
  const startOf = (item: number): number => split.items[item]?.start ?? 0;
  // One item often has several problems.
  let last: { readonly item: number; readonly locate: YamlLocator } | undefined;
  let locateInRest: YamlLocator | undefined;
  return {
    rest: { ...rest, services: [] },
    count: split.items.length,
    textOf,
    read(item) {
      if (!isJson) return readPiece(textOf(item), limits);
      // The item is in a list in a map.
      const value = parseJson(textOf(item), limits.maxDepth - 2, split.items[item]?.colons);
      return value === undefined ? undefined : { value };
    },
    isJson,
    startOf,
    locate(item, segments, atKey) {
      if (item === undefined) {
        const at = (locateInRest ??= locatorIn(split.rest, limits))(segments, atKey);
        return at < split.cutAt ? at : at + split.cutLength;
      }
      if (last?.item !== item) last = { item, locate: locatorIn(textOf(item), limits) };
      return startOf(item) + last.locate(isJson ? segments : [0, ...segments], atKey);
    },
  };
}

/** The YAML file without its service items. Undefined if it cannot be split after all. */
function readRest({ rest, keyAt }: Split, limits: FileLimits): unknown {
  if (rest.length > limits.maxPieceChars) return undefined;
  // The key may turn out to be part of a text, and an alias may refer to an item.
  const parsed = parseYaml(rest, limits);
  const [head] = parsed.ok && parsed.documents.length === 1 ? parsed.documents : [];
  if (head === undefined || head.hasAliases || !isMap(head.value)) return undefined;
  const isCut =
    head.value['services'] === null && locatorIn(rest, limits)(['services'], true) === keyAt;
  return isCut ? head.value : undefined;
}

function readPiece(text: string, limits: FileLimits): ItemResult | undefined {
  const { maxPieceChars } = limits;
  if (text.length > maxPieceChars) return { problem: tooLong('a service', maxPieceChars) };
  const parsed = parseYaml(text, limits);
  if (!parsed.ok) return parsed.problem.isUnresolved === true ? undefined : parsed;
  const list = parsed.documents[0]?.value;
  const isOne = parsed.documents.length === 1 && Array.isArray(list) && list.length === 1;
  return isOne ? { value: (list as unknown[])[0] } : undefined;
}

/** Parses a file as one value, JSON or YAML. */
export function layOutWhole(text: string, limits: FileLimits): Layout | { problem: YamlProblem } {
  const whole = readWhole(text, limits);
  if ('problem' in whole) return whole;
  const { value } = whole;
  if (value === null) {
    const message =
      'the file is empty, perhaps not written to its end; `services: []` means no services';
    return { problem: { offset: 0, message } };
  }
  if (!isMap(value)) {
    return { problem: { offset: 0, message: 'a state file is a map with the key `services`' } };
  }
  const services: unknown = value['services'];
  const items: readonly unknown[] = Array.isArray(services) ? services : [];
  let locateInText: YamlLocator | undefined;
  const locate: Layout['locate'] = (item, segments, atKey) => {
    if (text.length > limits.maxPieceChars) return 0;
    locateInText ??= locatorIn(text, limits);
    return locateInText(item === undefined ? segments : ['services', item, ...segments], atKey);
  };
  return {
    rest: Array.isArray(services) ? { ...value, services: [] } : value,
    count: items.length,
    textOf: (item) => JSON.stringify(items[item]) ?? '',
    read: (item) => ({ value: items[item] }),
    isJson: true,
    locate,
    startOf: (item) => locate(item, []),
  };
}

function readWhole(text: string, limits: FileLimits): ItemResult {
  const json = JSON_START.test(text) ? parseJson(text, limits.maxDepth) : undefined;
  if (json !== undefined) return { value: json };
  // YAML also locates errors in JSON, and the second of two equal keys.
  const { maxPieceChars } = limits;
  if (text.length > maxPieceChars) {
    const what = 'a file that is not JSON, or YAML in block style without aliases,';
    return { problem: tooLong(what, maxPieceChars) };
  }
  const parsed = parseYaml(text, limits);
  if (!parsed.ok) return parsed;
  const [document, second] = parsed.documents;
  if (second === undefined) return { value: document?.value ?? null };
  const foreign = foreignKind(document?.value) ?? foreignKind(second.value);
  if (foreign !== undefined) return { problem: { offset: 0, message: foreign } };
  const message = 'a second document begins here; a state file has one';
  return { problem: { offset: second.offset, message } };
}

/** The value of a JSON text. Undefined if it is invalid, nested too deeply, or has a duplicate key. */
function parseJson(text: string, maxDepth: number, colons = countColons(text)): unknown {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  return countKeys(value, maxDepth) === colons ? value : undefined;
}

type Json = Readonly<Record<string, unknown>>;

function countKeys(value: unknown, maxDepth: number): number {
  if (typeof value !== 'object' || value === null) return 0;
  if (maxDepth === 0) return NaN;
  let count = 0;
  if (Array.isArray(value)) {
    for (const each of value) count += countKeys(each, maxDepth - 1);
    return count;
  }
  // JSON.parse makes every key enumerable, and no key is inherited.
  for (const key in value) count += 1 + countKeys((value as Json)[key], maxDepth - 1);
  return count;
}

/** Number of keys in a JSON text: one for each colon outside quotes. */
function countColons(text: string): number {
  let count = 0;
  for (let at = 0; at < text.length; at += 1) {
    const char = text.charCodeAt(at);
    if (char === COLON) count += 1;
    if (char === QUOTE) at = endOfText(text, at);
  }
  return count;
}

const JSON_START = /^\s*\{/;
const [QUOTE, BACKSLASH, COLON, COMMA] = [0x22, 0x5c, 0x3a, 0x2c];
const [LIST, END_OF_LIST, MAP, END_OF_MAP] = [0x5b, 0x5d, 0x7b, 0x7d];

function tooLong(what: string, maxPieceChars: number): YamlProblem {
  const limit = formatBytes(maxPieceChars);
  return { offset: 0, message: `${what} may have at most ${limit} characters; write it as JSON` };
}

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

interface SplitItem {
  readonly text: string;
  readonly start: number;
  /** In JSON: see `countColons`. */
  readonly colons?: number;
}

/** A text, split into the items of its list `services`. */
interface Split {
  readonly items: readonly SplitItem[];
  readonly rest: string;
  /** Offset of the key `services`, in the text as in the rest. */
  readonly keyAt: number;
  /** Offset in the rest where the items were, and their total length. */
  readonly cutAt: number;
  readonly cutLength: number;
}

/**
 * Splits JSON with a list `services` by its brackets. Undefined if there is none, or if it is nested too deeply. The caller has to parse rest and
 * items: together they are valid exactly if the text is.
 */
function splitJson(text: string, maxDepth: number): Split | undefined {
  const items: SplitItem[] = [];
  let depth = 0;
  let colons = 0;
  /** The last text in the outermost map: in front of a list, its key. */
  let key = { text: '', at: 0 };
  let cutAt = 0;
  let start = 0;
  for (let at = 0; at < text.length; at += 1) {
    const char = text.charCodeAt(at);
    if (char === QUOTE) {
      const from = at;
      at = endOfText(text, at);
      if (depth === 1) key = { text: text.slice(from, at + 1), at: from };
    } else if (char === COLON) {
      colons += 1;
    } else if (char === LIST || char === MAP) {
      depth += 1;
      if (depth > maxDepth) return undefined;
      if (depth === 2 && char === LIST && key.text === '"services"') {
        start = cutAt = at + 1;
        colons = 0;
      }
    } else if (char === END_OF_LIST || char === END_OF_MAP || char === COMMA) {
      if (cutAt > 0 && depth === 2) {
        const item = text.slice(start, at).replace(/^[ \t\r\n]+/, '');
        // A list without items has no comma either.
        if (item !== '' || char === COMMA || items.length > 0) {
          items.push({ text: item, start: at - item.length, colons });
        }
        colons = 0;
        start = at + 1;
        if (char !== COMMA) {
          const rest = text.slice(0, cutAt) + text.slice(at);
          return { items, rest, keyAt: key.at, cutAt, cutLength: at - cutAt };
        }
      }
      if (char !== COMMA) depth -= 1;
    }
  }
  return undefined;
}

/** Offset of the quote that ends the text in quotes at `at`. */
function endOfText(json: string, at: number): number {
  let end = at + 1;
  while (end < json.length && json.charCodeAt(end) !== QUOTE) {
    end += json.charCodeAt(end) === BACKSLASH ? 2 : 1;
  }
  return end;
}

/**
 * Splits a text by its indentation. Undefined if it is not in block style, or could mean something else as a whole.
 * The caller has to verify the key by parsing the rest.
 */
function splitServices(text: string): Split | undefined {
  const key = /^services:[ \t]*(?:#.*)?\r?\n/m.exec(text);
  // Directives apply to all items, and in YAML a lone CR ends a line.
  if (key === null || /^%|\r(?!\n)/m.test(text)) return undefined;
  const cutAt = key.index + key[0].length;
  const firstLine = /^( *)-(?=[ \r\n])/gm;
  firstLine.lastIndex = cutAt;
  const indent = firstLine.exec(text)?.[1]?.length;
  if (indent === undefined) return undefined;
  // More deeply indented lines belong to the item above.
  const outline = new RegExp(`^ {0,${indent}}[^ \\r\\n#]`, 'gm');
  outline.lastIndex = cutAt;
  const starts: number[] = [];
  let end = text.length;
  for (let line = outline.exec(text); line !== null; line = outline.exec(text)) {
    const [start] = line;
    const column = start.length - 1;
    const isItem = start.endsWith('-') && /[ \r\n]|^$/.test(text.charAt(outline.lastIndex));
    if (isItem && column === indent) {
      starts.push(line.index);
    } else if (!isItem && starts.length > 0 && column === 0 && /[A-Za-z_"']/.test(start)) {
      end = line.index;
      break;
    } else {
      return undefined;
    }
  }
  return {
    items: starts.map((start, index) => ({
      text: text.slice(start, starts[index + 1] ?? end),
      start,
    })),
    rest: text.slice(0, cutAt) + text.slice(end),
    keyAt: key.index,
    cutAt,
    cutLength: end - cutAt,
  };
}

/** The message about a file that recognisably contains something other than a state. */
export function foreignKind(value: unknown): string | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const { apiVersion, kind } = value as Readonly<Record<string, unknown>>;
  if (typeof apiVersion !== 'string' || typeof kind !== 'string') return undefined;
  const shown = `kind: ${JSON.stringify(kind.slice(0, 64))}`;
  if (/^(?:KubeProxy|UserspaceProxy)Configuration$/.test(kind)) {
    return `this is a configuration file (${shown}), not a state file; give it to --config`;
  }
  return (
    `this is a Kubernetes manifest (${shown}), not a state file, which has a list of services (docs/reference/` +
    'state-file.md); apply it to a cluster and use the source kube, or save the state of the cluster with kube to-file'
  );
}
