import { KpngError, messageOf } from '../errors.ts';
import { readContent } from '../util/read-content.ts';
import { closest } from '../util/suggest.ts';
import { type Position, positionsIn, shorten } from '../util/yaml-text.ts';
import { locatorIn, parseYaml, type YamlLocator } from '../util/yaml.ts';
import {
  CONFIG_FILE,
  CONFIG_LIMITS,
  fieldName,
  type FieldRule,
  type Fields,
  KUBE_PROXY_API_VERSION,
  KUBE_PROXY_FIELDS,
  KUBE_PROXY_KIND,
  OWN_API_VERSION,
  OWN_COMMAND,
  OWN_KIND,
  textOf,
} from './fields.ts';

/** A problem in a configuration file, with its position. */
export interface ConfigProblem {
  /** From 1; 0: the file as a whole. */
  readonly line: number;
  readonly column: number;
  /** The field, such as `clientConnection.kubeconfig`; empty: none. */
  readonly field: string;
  readonly message: string;
}

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

/** The text of a configuration file. Rejects with KPNG_CONFIG_READ. */
export async function readConfigText(path: string): Promise<string> {
  const content = await readContent(path, CONFIG_LIMITS.maxFileBytes, CONFIG_FILE);
  if (content instanceof KpngError) throw content;
  return configText(path, content.bytes);
}

/** The text of the content of a configuration file. Throws KPNG_CONFIG_READ. */
export function configText(path: string, bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (cause) {
    const message = `cannot read the configuration ${path}: it is not UTF-8 text`;
    throw new KpngError('KPNG_CONFIG_READ', message, { cause });
  }
}

/** Resolves a configuration file from its text. Throws KPNG_CONFIG_INVALID, with the first of its problems. */
export function parseConfig(path: string, text: string, fields: Fields): ConfigFile {
  const resolved = resolveConfig(path, text, fields);
  if (resolved.ok) return resolved.config;
  const { problems } = resolved;
  const first = problems.slice(0, MAX_IN_MESSAGE).map((each) => problemText(path, each));
  if (problems.length > first.length) first.push(`and ${problems.length - first.length} more`);
  throw new KpngError('KPNG_CONFIG_INVALID', first.join('; '));
}

const MAX_IN_MESSAGE = 3;

type Json = Readonly<Record<string, unknown>>;

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

const { maxDepth, maxValues, maxDocuments } = CONFIG_LIMITS;
const YAML_LIMITS = { maxDepth: maxDepth + 1, maxAliasedValues: maxValues };

/**
 * Resolves a configuration file from its text, YAML or JSON: at most one document of each kind, in any order. Our own
 * kind overrides. What of kube-proxy's fields does not apply here causes a warning; a field that a kind does not have
 * is an error. Finds all problems of the file at once.
 */
export function resolveConfig(path: string, text: string, fields: Fields): Resolved {
  const problems: ConfigProblem[] = [];
  const warnings: ConfigProblem[] = [];
  const settings = new Map<string, Setting>();
  let command: readonly string[] | undefined;
  const positionAt = positionsIn(text);
  const refuse = (message: string, at: Position = { line: 0, column: 0 }): void =>
    void problems.push({ ...at, field: '', message });

  /** Of the document that is read. */
  let locate: YamlLocator;

  const readField = (keys: readonly string[], value: unknown, rules: Rules): void => {
    const key = keys.at(-1) ?? '';
    const field = keys.map(shorten).join('.');
    const at = { ...positionAt(locate(keys, true)), field };
    try {
      const rule = Object.hasOwn(rules, key) ? rules[key] : undefined;
      if (rule === undefined) throw new Error(unknownField(key, Object.keys(rules)));
      if (rule.kind === 'command') {
        command = words(value) ?? command;
      } else if (rule.kind === 'flag') {
        const { flag, convert } = rule;
        const found = checkedText(convert === undefined ? value : convert(value), flag, fields);
        if (found !== undefined) settings.set(flag, { flag, text: found, field, line: at.line });
      } else if (rule.kind === 'object') {
        if (isObject(value)) readFields(value, rule.fields, keys);
        else if (value !== null) throw new Error('expected an object');
      } else if (!isEmpty(value) && value !== rule.always) {
        warnings.push({ ...at, message: `has no effect: ${rule.why}` });
      }
    } catch (error) {
      problems.push({ ...at, message: messageOf(error) });
    }
  };
  const readFields = (object: Json, rules: Rules, above: readonly string[] = []): void => {
    for (const [key, value] of Object.entries(object)) readField([...above, key], value, rules);
  };

  const parsed = parseYaml(text, YAML_LIMITS);
  const documents = parsed.ok ? parsed.documents : [];
  const byKind = new Map<string, { readonly rest: Json; readonly index: number }>();
  if (!parsed.ok) {
    refuse(parsed.problem.message, positionAt(parsed.problem.offset));
  } else if (documents.length > maxDocuments) {
    refuse(`there are more than ${maxDocuments} documents`, positionAt(0));
  } else if (documents.every(({ value }) => value === null)) {
    refuse('there is no document in the file');
  } else {
    for (const [index, { value, offset }] of documents.entries()) {
      if (value === null) continue;
      try {
        const { kind, rest } = headOf(value);
        if (byKind.has(kind)) throw new Error(`a second document of the kind ${kind}`);
        byKind.set(kind, { rest, index });
      } catch (error) {
        refuse(messageOf(error), positionAt(offset));
      }
    }
  }
  for (const kind of KINDS) {
    const document = byKind.get(kind.kind);
    if (document === undefined) continue;
    command = kind.command ?? command;
    locate = locatorIn(text, YAML_LIMITS, document.index);
    readFields(document.rest, kind.rules(fields));
  }
  if (problems.length === 0) return { ok: true, config: { path, settings, command, warnings } };
  return { ok: false, problems: problems.sort((a, b) => a.line - b.line) };
}

/** The kind of a document, and its fields but apiVersion and kind. Throws an Error if there is no such kind. */
function headOf(value: unknown): { readonly kind: string; readonly rest: Json } {
  if (!isObject(value)) throw new Error('expected an object with apiVersion and kind');
  if (countValues(value) > maxValues) {
    throw new Error(`there are more than ${maxValues} keys and values`);
  }
  const [apiVersion, kind] = ['apiVersion', 'kind'].map((name) => {
    const text = Object.hasOwn(value, name) ? value[name] : undefined;
    if (typeof text !== 'string' || text === '') throw new Error(`${name} is missing`);
    return text;
  });
  const known = KINDS.find((each) => each.kind === kind);
  if (known === undefined) {
    const kinds = KINDS.map((each) => each.kind).join(' or ');
    throw new Error(`unknown kind ${kind}; expected ${kinds}`);
  }
  if (apiVersion !== known.apiVersion) {
    throw new Error(`unknown apiVersion ${apiVersion} of ${kind}; expected ${known.apiVersion}`);
  }
  const { apiVersion: _version, kind: _kind, ...rest } = value;
  return { kind: known.kind, rest };
}

function countValues(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 1;
  return Object.values(value).reduce<number>((count, each) => count + 1 + countValues(each), 1);
}

function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
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

function unknownField(key: string, known: readonly string[]): string {
  const meant = closest(key, known);
  return meant === undefined ? 'unknown field' : `unknown field; did you mean ${meant}?`;
}

/** `kube to-local to-userspace`, or the same as a list. */
function words(value: unknown): readonly string[] | undefined {
  if (value === null) return undefined;
  const list: readonly unknown[] = typeof value === 'string' ? value.split(/\s+/) : [value].flat();
  const areWords = list.every((word) => typeof word === 'string' && /^[^-]/.test(word));
  if (areWords && list.length > 0) return list as string[];
  throw new Error('expected the words of a command, without flags, such as kube to-userspace');
}

/** Generated files name every field, most of them with an empty value. */
function isEmpty(value: unknown): boolean {
  if (typeof value === 'object' && value !== null) return Object.values(value).every(isEmpty);
  return value === null || value === false || ['', 0, '0', '0s'].some((each) => each === value);
}

/** `config.yaml:12:3: mode: expected a text` */
export function problemText(path: string, { line, column, field, message }: ConfigProblem): string {
  const position = line === 0 ? path : `${path}:${line}:${column}`;
  return field === '' ? `${position}: ${message}` : `${position}: ${field}: ${message}`;
}
