import { formatBytes } from '../util/bytes.ts';
import { locatorIn, parseYaml, type Segment, type YamlLocator } from '../util/yaml.ts';
import { shorten } from '../util/yaml-text.ts';
import { CONFIG_LIMITS } from './limits.ts';

/** A problem in a configuration file, with its position. */
export interface ConfigProblem {
  /** From 1; 0: the file as a whole. */
  readonly line: number;
  readonly column: number;
  /** The field, such as `clientConnection.kubeconfig`; empty: none. */
  readonly field: string;
  readonly message: string;
}

/** One field of a document, with its position. */
export interface ConfigEntry {
  readonly key: string;
  /** Its keys from the top, joined by dots. */
  readonly path: string;
  readonly line: number;
  readonly column: number;
  readonly value: unknown;
  /** The fields within, when the value is an object. */
  readonly entries: readonly ConfigEntry[] | undefined;
}

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

const { maxFileBytes, maxDepth, maxValues, maxDocuments } = CONFIG_LIMITS;
const YAML_LIMITS = { maxDepth: maxDepth + 1, maxAliasedValues: maxValues };

/**
 * Splits a file into one or several YAML documents (JSON is YAML, too), each an object with a kind. Within the limits this
 * takes up to a quarter of a second, too long for a thread that serves clients.
 */
export function readDocuments(text: string): ReadDocuments {
  const positionAt = positionsIn(text.slice(0, maxFileBytes));
  const refuse = (offset: number, message: string): ReadDocuments => {
    return { documents: [], problems: [{ ...positionAt(offset), field: '', message }] };
  };
  if (text.length > maxFileBytes) {
    return refuse(0, `the file is larger than ${formatBytes(maxFileBytes)}`);
  }
  const parsed = parseYaml(text, YAML_LIMITS);
  if (!parsed.ok) return refuse(parsed.problem.offset, parsed.problem.message);
  if (parsed.documents.length > maxDocuments) {
    return refuse(0, `there are more than ${maxDocuments} documents`);
  }
  const documents: ConfigDocument[] = [];
  const problems: ConfigProblem[] = [];
  for (const [index, { value, offset }] of parsed.documents.entries()) {
    if (value === null) continue;
    const position = positionAt(offset);
    const message = problemOf(value);
    if (message !== undefined || !isObject(value)) {
      problems.push({ ...position, field: '', message: message ?? '' });
      continue;
    }
    const { apiVersion, kind, ...rest } = value;
    const locate = locatorIn(text, YAML_LIMITS, index);
    const entries = entriesOf(rest, [], (...at) => positionAt(locate(...at)));
    documents.push({
      apiVersion: String(apiVersion),
      kind: String(kind),
      line: position.line,
      entries,
    });
  }
  return { documents, problems };
}

/** The error of a document as a whole. */
function problemOf(value: unknown): string | undefined {
  if (!isObject(value)) return 'expected an object with apiVersion and kind';
  if (countValues(value) > maxValues) return `there are more than ${maxValues} keys and values`;
  for (const name of ['apiVersion', 'kind']) {
    const text = Object.hasOwn(value, name) ? value[name] : undefined;
    if (typeof text !== 'string' || text === '') return `${name} is missing`;
  }
  return undefined;
}

function countValues(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 1;
  return Object.values(value).reduce<number>((count, each) => count + 1 + countValues(each), 1);
}

interface Position {
  readonly line: number;
  readonly column: number;
}

function entriesOf(
  object: Readonly<Record<string, unknown>>,
  above: readonly Segment[],
  positionOf: (...at: Parameters<YamlLocator>) => Position,
): ConfigEntry[] {
  return Object.entries(object).map(([key, value]): ConfigEntry => {
    const segments = [...above, key];
    const { line, column } = positionOf(segments, true);
    return {
      key,
      path: segments.map((each) => shorten(String(each))).join('.'),
      line,
      column,
      value,
      entries: isObject(value) ? entriesOf(value, segments, positionOf) : undefined,
    };
  });
}

/** Finds line and column of offsets in a text, both from 1. */
function positionsIn(text: string): (offset: number) => Position {
  const starts = [0, ...[...text.matchAll(/\n/g)].map(({ index }) => index + 1)];
  return (offset) => {
    let [line, end] = [0, starts.length];
    while (end - line > 1) {
      const middle = (line + end) >> 1;
      if ((starts[middle] ?? 0) <= offset) line = middle;
      else end = middle;
    }
    return { line: line + 1, column: offset - (starts[line] ?? 0) + 1 };
  };
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
