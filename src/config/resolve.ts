import { KpngError, messageOf } from '../errors.ts';
import { closest } from '../util/suggest.ts';
import {
  readDocuments,
  type ConfigDocument,
  type ConfigEntry,
  type ConfigProblem,
  type ReadDocuments,
} from './documents.ts';
import { fieldName, OWN_API_VERSION, OWN_KIND, OWN_COMMAND, textOf, type Fields } from './field.ts';
import {
  KUBE_PROXY_API_VERSION,
  KUBE_PROXY_FIELDS,
  KUBE_PROXY_KIND,
  type FieldRule,
} from './kube-proxy-fields.ts';

export interface Setting {
  readonly flag: string;
  /** The equivalent text on a command line. */
  readonly text: string;
  /** The field it comes from, such as `clientConnection.kubeconfig`. */
  readonly field: string;
  readonly line: number;
}

export interface ConfigFile {
  readonly path: string;
  /** By flag, without dashes. */
  readonly settings: ReadonlyMap<string, Setting>;
  /** The words of the command line in the file; undefined: none. */
  readonly command: readonly string[] | undefined;
  /** Settings without effect, and why. */
  readonly warnings: readonly ConfigProblem[];
}

export type Resolved =
  | { readonly ok: true; readonly config: ConfigFile }
  | { readonly ok: false; readonly problems: readonly ConfigProblem[] };

/** How each field of a kind of document is handled. */
type Rules = Readonly<Record<string, FieldRule | { readonly kind: 'command' }>>;

interface Kind {
  readonly kind: string;
  readonly apiVersion: string;
  /** The command that a document of this kind stands for, unless it names one. */
  readonly command?: readonly string[];
  rules(fields: Fields): Rules;
}

/** In the order of precedence: a later one overrides. */
const KINDS: readonly Kind[] = [
  {
    kind: KUBE_PROXY_KIND,
    apiVersion: KUBE_PROXY_API_VERSION,
    command: ['kube', 'to-local', 'to-userspace'],
    rules: () => KUBE_PROXY_FIELDS,
  },
  {
    kind: OWN_KIND,
    apiVersion: OWN_API_VERSION,
    rules(fields) {
      const flags = Array.from(fields.keys(), (flag) => [fieldName(flag), { kind: 'flag', flag }]);
      return { ...(Object.fromEntries(flags) as Rules), [OWN_COMMAND]: { kind: 'command' } };
    },
  },
];

/**
 * Resolves a configuration file, from its text or its parsed documents: at most one document of each kind, in any
 * order. Our own kind overrides. What of kube-proxy's fields does not apply here causes a warning; a field that a
 * kind does not have is an error. Finds all problems of the file at once.
 */
export function resolveConfig(
  path: string,
  content: string | ReadDocuments,
  fields: Fields,
): Resolved {
  const read = typeof content === 'string' ? readDocuments(content) : content;
  const problems = [...read.problems];
  const warnings: ConfigProblem[] = [];
  const settings = new Map<string, Setting>();
  let command: readonly string[] | undefined;

  const readField = (entry: ConfigEntry, rules: Rules): void => {
    const { key, value, line, path: field } = entry;
    const rule = Object.hasOwn(rules, key) ? rules[key] : undefined;
    if (rule === undefined) throw new Error(unknownField(key, Object.keys(rules)));
    if (rule.kind === 'command') {
      command = words(value) ?? command;
    } else if (rule.kind === 'flag') {
      const { flag, convert } = rule;
      const text = checkedText(convert === undefined ? value : convert(value), flag, fields);
      if (text !== undefined) settings.set(flag, { flag, text, field, line });
    } else if (rule.kind === 'object') {
      if (entry.entries !== undefined) readEach(entry.entries, rule.fields);
      else if (value !== null) throw new Error('expected an object');
    } else if (!isEmpty(value) && value !== rule.always) {
      warnings.push(problemOf(entry, `has no effect: ${rule.why}`));
    }
  };
  const readEach = (entries: readonly ConfigEntry[], rules: Rules): void => {
    for (const entry of entries) {
      try {
        readField(entry, rules);
      } catch (error) {
        problems.push(problemOf(entry, messageOf(error)));
      }
    }
  };

  if (read.documents.length === 0 && problems.length === 0) {
    problems.push({ line: 0, column: 0, field: '', message: 'there is no document in the file' });
  }
  const byKind = new Map<string, ConfigDocument>();
  for (const document of read.documents) {
    const message = wrongHead(document, byKind);
    if (message === undefined) byKind.set(document.kind, document);
    else problems.push({ line: document.line, column: 1, field: '', message });
  }
  for (const kind of KINDS) {
    const document = byKind.get(kind.kind);
    if (document === undefined) continue;
    command = kind.command ?? command;
    readEach(document.entries, kind.rules(fields));
  }
  if (problems.length === 0) return { ok: true, config: { path, settings, command, warnings } };
  return { ok: false, problems: problems.sort((a, b) => a.line - b.line) };
}

/** The error of a document's kind or version, or if there is one of the kind already. */
function wrongHead(
  { apiVersion, kind }: ConfigDocument,
  seen: ReadonlyMap<string, unknown>,
): string | undefined {
  const known = KINDS.find((each) => each.kind === kind);
  if (known === undefined) {
    return `unknown kind ${kind}; expected ${KINDS.map((each) => each.kind).join(' or ')}`;
  }
  if (apiVersion !== known.apiVersion) {
    return `unknown apiVersion ${apiVersion} of ${kind}; expected ${known.apiVersion}`;
  }
  return seen.has(kind) ? `a second document of the kind ${kind}` : undefined;
}

/** The text of a flag; undefined if the value sets nothing. Throws an error if the flag would refuse it. */
function checkedText(value: unknown, flag: string, fields: Fields): string | undefined {
  const kind = fields.get(flag)?.kind;
  const text = kind && textOf(value, kind.schema);
  if (text === undefined) return undefined;
  try {
    kind?.parse(text);
  } catch (error) {
    throw new Error(`${JSON.stringify(value)}: ${messageOf(error)}`, { cause: error });
  }
  return text;
}

function problemOf({ line, column, path }: ConfigEntry, message: string): ConfigProblem {
  return { line, column, field: path, message };
}

function unknownField(key: string, known: readonly string[]): string {
  const meant = closest(key, known);
  return meant === undefined ? 'unknown field' : `unknown field; did you mean ${meant}?`;
}

/** `kube to-local to-userspace`, or the same as a list. */
function words(value: unknown): readonly string[] | undefined {
  if (value === null) return undefined;
  const given: unknown = typeof value === 'string' ? value.split(/\s+/) : value;
  const list: readonly unknown[] = Array.isArray(given) ? given : [];
  const texts = list.filter((word) => typeof word === 'string');
  const plain = texts.filter((word) => word !== '' && !word.startsWith('-'));
  if (plain.length > 0 && plain.length === list.length) return plain;
  throw new Error('expected the words of a command, without flags, such as kube to-userspace');
}

/** Generated files name every field, most of them with an empty value. */
function isEmpty(value: unknown): boolean {
  if (typeof value === 'object' && value !== null) return Object.values(value).every(isEmpty);
  return value === null || value === false || ['', 0, '0', '0s'].some((each) => each === value);
}

const MAX_IN_MESSAGE = 3;

/** `config.yaml:12:3: mode: expected a text` */
export function problemText(path: string, { line, column, field, message }: ConfigProblem): string {
  const position = line === 0 ? path : `${path}:${line}:${column}`;
  return field === '' ? `${position}: ${message}` : `${position}: ${field}: ${message}`;
}

/** The error for a file with problems; the message lists the first of them. */
export function invalidConfig(path: string, problems: readonly ConfigProblem[]): KpngError {
  const first = problems.slice(0, MAX_IN_MESSAGE).map((each) => problemText(path, each));
  if (problems.length > first.length) first.push(`and ${problems.length - first.length} more`);
  return new KpngError('KPNG_CONFIG_INVALID', first.join('; '));
}
