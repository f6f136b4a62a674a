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
import { positionsIn, type Position } from '../util/yaml-text.ts';
import type { FileLimits } from './limits.ts';

/** What was parsed, or why it cannot be; with an offset in the file. */
export type ParsedPart = { readonly value: unknown } | { readonly problem: YamlProblem };

export interface Layout {
  readonly positionAt: (offset: number) => Position;
  /** The file without its service items: their list, if any, is empty. */
  readonly rest: ParsedPart;
  readonly count: number;
  /** Equal for equal items. */
  textOf(item: number): string;
  /** Undefined if the file cannot be split after all. */
  read(item: number): ParsedPart | undefined;
  /** Offset in the file of a part of an item, or of the rest if there is no item. */
  locate(item: number | undefined, segments: readonly Segment[], atKey?: boolean): number;
}

/** Splits JSON, or YAML in block style, into pieces. Undefined for text in another form. */
export function layOutPieces(text: string, limits: FileLimits): Layout | undefined {
  const isJson = /^\s*\{/.test(text);
  const split = isJson ? splitJson(text, limits) : splitYaml(text, limits);
  if (split === undefined || !isMap(split.rest)) return undefined;
  const itemAt = (item: number): SplitItem => split.items[item] ?? { text: '', start: 0 };
  // One item often has several problems.
  let last: { readonly item: number | undefined; readonly locate: YamlLocator } | undefined;
  return {
    positionAt: positionsIn(text),
    rest: { value: split.cutAt === 0 ? split.rest : { ...split.rest, services: [] } },
    count: split.items.length,
    textOf: (item) => itemAt(item).text,
    read(item) {
      if (!isJson) return readItem(itemAt(item), limits);
      const value = parseJson(itemAt(item).text);
      return value === undefined ? undefined : { value };
    },
    locate(item, segments, atKey) {
      // A large file without services need not be parsed as YAML for this.
      if (isJson && item === undefined && segments.length === 0) return text.indexOf('{');
      const piece = item === undefined ? { text: split.restText, start: 0 } : itemAt(item);
      if (last === undefined || last.item !== item) {
        last = { item, locate: locatorIn(piece.text, limits) };
      }
      const isInList = item !== undefined && !isJson;
      const at = piece.start + last.locate(isInList ? [0, ...segments] : segments, atKey);
      return item === undefined && at >= split.cutAt ? at + split.cutLength : at;
    },
  };
}

function readItem({ text, start }: SplitItem, limits: FileLimits): ParsedPart | undefined {
  const { maxPieceChars } = limits;
  if (text.length > maxPieceChars) return tooLong('a service', start, maxPieceChars);
  const parsed = parseYaml(text, limits);
  if (!parsed.ok) {
    const { offset, message, isUnresolved } = parsed.problem;
    return isUnresolved === true ? undefined : problem(start + offset, message);
  }
  const list = parsed.documents[0]?.value;
  const isOne = parsed.documents.length === 1 && Array.isArray(list) && list.length === 1;
  return isOne ? { value: (list as unknown[])[0] } : undefined;
}

/** Parses a file as one YAML document. Invalid JSON is one, too: YAML locates its errors, and the second of two equal keys. */
export function layOutWhole(text: string, limits: FileLimits): Layout {
  const rest = readWhole(text, limits);
  const value = 'value' in rest && isMap(rest.value) ? rest.value : {};
  const services: unknown = value['services'];
  const items: readonly unknown[] = Array.isArray(services) ? services : [];
  let locateInText: YamlLocator | undefined;
  return {
    positionAt: positionsIn(text),
    rest: Array.isArray(services) ? { value: { ...value, services: [] } } : rest,
    count: items.length,
    textOf: (item) => JSON.stringify(items[item]),
    read: (item) => ({ value: items[item] }),
    locate(item, segments, atKey) {
      locateInText ??= locatorIn(text, limits);
      return locateInText(item === undefined ? segments : ['services', item, ...segments], atKey);
    },
  };
}

function readWhole(text: string, limits: FileLimits): ParsedPart {
  const { maxPieceChars } = limits;
  if (text.length > maxPieceChars) {
    const what = 'a file that is not JSON, or YAML in block style without aliases,';
    return tooLong(what, 0, maxPieceChars);
  }
  const parsed = parseYaml(text, limits);
  if (!parsed.ok) return parsed;
  const [document, second] = parsed.documents;
  const value = document?.value ?? null;
  if (second !== undefined) {
    const foreign = foreignKind(value) ?? foreignKind(second.value);
    if (foreign !== undefined) return problem(0, foreign);
    return problem(second.offset, 'a second document begins here; a state file has one');
  }
  if (value === null) {
    return problem(
      0,
      'the file is empty, perhaps not written to its end; `services: []` means no services',
    );
  }
  return isMap(value) ? { value } : problem(0, 'a state file is a map with the key `services`');
}

/** The value of a JSON text. Undefined if it is invalid or has a duplicate key. */
function parseJson(text: string): unknown {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  return countKeys(value) === countColons(text) ? value : undefined;
}

function countKeys(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  let count = 0;
  if (Array.isArray(value)) {
    for (const each of value) count += countKeys(each);
    return count;
  }
  // JSON.parse makes every key enumerable, and no key is inherited.
  for (const key in value) count += 1 + countKeys((value as Record<string, unknown>)[key]);
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

const [QUOTE, BACKSLASH, COLON, COMMA] = [0x22, 0x5c, 0x3a, 0x2c];
const [LIST, END_OF_LIST, MAP, END_OF_MAP] = [0x5b, 0x5d, 0x7b, 0x7d];

function problem(offset: number, message: string): ParsedPart {
  return { problem: { offset, message } };
}

function tooLong(what: string, offset: number, maxPieceChars: number): ParsedPart {
  const limit = formatBytes(maxPieceChars);
  return problem(offset, `${what} may have at most ${limit} characters; write it as JSON`);
}

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

interface SplitItem {
  readonly text: string;
  readonly start: number;
}

/** A text, split into the items of its list `services`. */
interface Split {
  readonly items: readonly SplitItem[];
  readonly restText: string;
  /** The value of the rest; undefined if it is invalid. */
  readonly rest: unknown;
  /** Offset in the rest where the items were, and their total length. */
  readonly cutAt: number;
  readonly cutLength: number;
}

/**
 * Splits JSON by its brackets; without a list `services`, there are no items. Undefined if it is nested too deeply. Rest
 * and items together are valid exactly if the text is.
 */
function splitJson(text: string, { maxDepth }: FileLimits): Split | undefined {
  const items: SplitItem[] = [];
  let depth = 0;
  /** The last text in the outermost map: in front of a list, its key. */
  let key = '';
  let [cutAt, cutEnd, start] = [0, 0, 0];
  for (let at = 0; at < text.length; at += 1) {
    const char = text.charCodeAt(at);
    if (char === QUOTE) {
      const from = at;
      at = endOfText(text, at);
      if (depth === 1) key = text.slice(from, at + 1);
    } else if (char === LIST || char === MAP) {
      depth += 1;
      if (depth > maxDepth) return undefined;
      const isServices = depth === 2 && char === LIST && key === '"services"';
      if (isServices && cutAt === 0) start = cutAt = at + 1;
    } else if (char === END_OF_LIST || char === END_OF_MAP || char === COMMA) {
      if (cutAt > 0 && cutEnd === 0 && depth === 2) {
        const item = { text: text.slice(start, at), start };
        // A list without items has no comma either.
        if (char === COMMA || items.length > 0 || item.text.trim() !== '') items.push(item);
        start = at + 1;
        if (char !== COMMA) cutEnd = at;
      }
      if (char !== COMMA) depth -= 1;
    }
  }
  if (cutEnd === 0) return { items, restText: text, rest: parseJson(text), cutAt: 0, cutLength: 0 };
  const restText = text.slice(0, cutAt) + text.slice(cutEnd);
  return { items, restText, rest: parseJson(restText), cutAt, cutLength: cutEnd - cutAt };
}

/** Offset of the quote that ends the text in quotes at `at`. */
function endOfText(json: string, at: number): number {
  let end = at + 1;
  while (end < json.length && json.charCodeAt(end) !== QUOTE) {
    end += json.charCodeAt(end) === BACKSLASH ? 2 : 1;
  }
  return end;
}

/** Splits a text by its indentation. Undefined if it is not in block style, or could mean something else as a whole. */
function splitYaml(text: string, limits: FileLimits): Split | undefined {
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
  const items = starts.map((start, index) => {
    return { text: text.slice(start, starts[index + 1] ?? end), start };
  });
  const restText = text.slice(0, cutAt) + text.slice(end);
  if (restText.length > limits.maxPieceChars) return undefined;
  const parsed = parseYaml(restText, limits);
  const [head, second] = parsed.ok ? parsed.documents : [];
  if (second !== undefined || !isMap(head?.value) || head.value['services'] !== null)
    return undefined;
  // The key may be part of a text.
  if (locatorIn(restText, limits)(['services'], true) !== key.index) return undefined;
  return { items, restText, rest: head.value, cutAt, cutLength: end - cutAt };
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
