import { isMap, isScalar, LineCounter, parseAllDocuments, type Document, type Node } from 'yaml';
import { messageOf } from '../errors.ts';
import type { ConfigProblem } from './problem.ts';

/** One field of a document, with its place. */
export interface ConfigEntry {
  readonly key: string;
  /** Its keys from the top, joined by dots. */
  readonly path: string;
  readonly line: number;
  readonly column: number;
  /** The value as plain data. */
  readonly value: unknown;
  /** The fields within, when the value is an object. */
  readonly entries: readonly ConfigEntry[] | undefined;
}

/** One YAML document of a configuration file. */
export interface ConfigDocument {
  readonly apiVersion: string;
  readonly kind: string;
  readonly line: number;
  /** All fields but apiVersion and kind. */
  readonly entries: readonly ConfigEntry[];
}

export interface ReadDocuments {
  readonly documents: readonly ConfigDocument[];
  readonly problems: readonly ConfigProblem[];
}

/** Aliases that may be followed in one document: enough for people, too few for a bomb. */
const MAX_ALIASES = 100;
/** How deep objects may lie within each other. */
const MAX_DEPTH = 8;

/** Takes a file apart: one or several YAML documents (JSON is YAML, too), each an object with a kind. */
export function readDocuments(text: string): ReadDocuments {
  const lines = new LineCounter();
  const documents: ConfigDocument[] = [];
  const problems: ConfigProblem[] = [];
  const parsed = parseAllDocuments(text, { lineCounter: lines, prettyErrors: false });
  for (const document of 'empty' in parsed ? [] : parsed) {
    for (const { pos, message } of document.errors) {
      problems.push({ ...placeAt(lines, pos[0]), field: '', message: oneLine(message) });
    }
    if (document.errors.length > 0) continue;
    const read = readDocument(document, lines);
    if ('message' in read) problems.push(read);
    else if (read.kind !== EMPTY) documents.push(read);
  }
  return { documents, problems };
}

/** In place of a kind: there is nothing in the document. */
const EMPTY = '';

function readDocument(
  document: Document.Parsed,
  lines: LineCounter,
): ConfigDocument | ConfigProblem {
  const { contents } = document;
  const place = placeAt(lines, contents?.range[0] ?? 0);
  if (contents === null || (isScalar(contents) && contents.value === null)) {
    return { apiVersion: '', kind: EMPTY, line: place.line, entries: [] };
  }
  const problem = (message: string): ConfigProblem => ({ ...place, field: '', message });
  if (!isMap(contents)) return problem('expected an object with apiVersion and kind');
  let entries: readonly ConfigEntry[];
  try {
    entries = entriesOf(contents, { document, lines }, '', 0);
  } catch (error) {
    return problem(oneLine(messageOf(error)));
  }
  const head = (name: string): string | undefined => {
    const value = entries.find(({ key }) => key === name)?.value;
    return typeof value === 'string' && value !== '' ? value : undefined;
  };
  const [apiVersion, kind] = [head('apiVersion'), head('kind')];
  if (apiVersion === undefined) return problem('apiVersion is missing');
  if (kind === undefined) return problem('kind is missing');
  const rest = entries.filter(({ key }) => key !== 'apiVersion' && key !== 'kind');
  return { apiVersion, kind, line: place.line, entries: rest };
}

interface Within {
  readonly document: Document.Parsed;
  readonly lines: LineCounter;
}

function entriesOf(node: unknown, within: Within, prefix: string, depth: number): ConfigEntry[] {
  if (!isMap(node)) return [];
  if (depth > MAX_DEPTH) throw new Error(`objects lie more than ${MAX_DEPTH} deep`);
  return node.items.map((pair): ConfigEntry => {
    const key = isScalar(pair.key) ? String(pair.key.value) : String(pair.key);
    const range = (pair.key as Node | null)?.range;
    const path = prefix === '' ? key : `${prefix}.${key}`;
    const value = pair.value as Node | null;
    return {
      key,
      path,
      ...placeAt(within.lines, range?.[0] ?? 0),
      value: value?.toJS(within.document, { maxAliasCount: MAX_ALIASES }) ?? null,
      entries: isMap(value) ? entriesOf(value, within, path, depth + 1) : undefined,
    };
  });
}

function placeAt(lines: LineCounter, offset: number): { line: number; column: number } {
  const { line, col } = lines.linePos(offset);
  return { line, column: col };
}

function oneLine(message: string): string {
  return message.replaceAll(/\s+/g, ' ').trim();
}
