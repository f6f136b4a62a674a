import { isIPv4, isIPv6 } from 'node:net';
import type { ErrorObject } from 'ajv';
import { closest } from '../util/suggest.ts';
import type { Segment } from '../util/yaml.ts';
import { flowText, shorten } from '../util/yaml-text.ts';
import type { Finding } from './problem.ts';
import { stateFileSchema, type SchemaPart } from './schema.ts';

/** Describes an error of the schema validator. `root`: the validated value. */
export function describe(error: ErrorObject, root: unknown): Finding {
  const segments = pointerSegments(error.instancePath, root);
  if (error.keyword === 'additionalProperties') {
    const key = String(error.params['additionalProperty']);
    return { segments: [...segments, key], atKey: true, message: unknownKey(key, parentOf(error)) };
  }
  return { segments, message: messageOf(error) };
}

function parentOf(error: ErrorObject): SchemaPart {
  return (error.parentSchema ?? {}) as SchemaPart;
}

function unknownKey(key: string, parent: SchemaPart): string {
  const message = `unknown key '${shorten(key)}'`;
  const similar = closest(key, Object.keys(parent.properties ?? {}));
  if (similar !== undefined) return `${message}; did you mean '${similar}'?`;
  const owner = ownerOf(key, parent, stateFileSchema());
  return owner === undefined ? message : `${message}; it belongs ${owner}`;
}

/**
 * Where an unknown key belongs, if it is valid one level below or above, as with wrong indentation: `under 'ips'`,
 * `beside 'service'`. Undefined: neither.
 */
function ownerOf(key: string, parent: SchemaPart, root: SchemaPart): string | undefined {
  const below = Object.entries(parent.properties ?? {})
    .filter(([, part]) => has(resolve(part, root), key))
    .map(([name]) => `'${name}'`);
  if (below.length > 0) return `under ${below.join(' or ')}`;
  for (const object of [root, ...Object.values(root.definitions ?? {})]) {
    if (!has(object, key)) continue;
    for (const [name, part] of Object.entries(object.properties ?? {})) {
      if (resolve(part, root) === parent) return `beside '${name}'`;
    }
  }
  return undefined;
}

function has(part: SchemaPart | undefined, key: string): boolean {
  return part?.properties !== undefined && Object.hasOwn(part.properties, key);
}

/** The map that a part of the schema describes, or the items of its list. */
function resolve(part: SchemaPart, root: SchemaPart): SchemaPart | undefined {
  if (part.$ref !== undefined) return root.definitions?.[part.$ref.replace('#/definitions/', '')];
  return part.items === undefined ? part : resolve(part.items, root);
}

function messageOf(error: ErrorObject): string {
  const schema = parentOf(error);
  const title = schema.title ?? 'value';
  const value = show(error.data);
  switch (error.keyword) {
    case 'required':
      return `'${String(error.params['missingProperty'])}' is missing`;
    case 'type':
      return wrongType(error, schema);
    case 'minimum':
    case 'maximum':
    case 'minLength':
      return `${value} is not ${withArticle(title)}${range(schema)}`;
    case 'format':
      return `${value} is not ${withArticle(title)}${addressHint(title, error.data)}`;
    case 'pattern':
      return `${value} is not ${withArticle(title)} (letters, digits, '-', '_' and '.'; the first and the last a letter or digit)`;
    case 'maxLength':
      return `${value} is too long for ${withArticle(title)} (at most ${schema.maxLength} characters)`;
    case 'enum':
      return `${value} is not ${withArticle(title)}${choices(error.data, schema.enum ?? [])}`;
    default:
      return `${value}: ${error.message ?? error.keyword}`;
  }
}

function wrongType({ data: value, instancePath }: ErrorObject, schema: SchemaPart): string {
  const title = schema.title ?? 'value';
  const noun =
    title === 'text' ? title : title === 'boolean' ? 'true or false' : withArticle(title);
  if (value === null || value === undefined) {
    return `there is no value; it must be ${noun}${range(schema)}`;
  }
  const message = `${show(value)} is not ${noun}${range(schema)}`;
  return `${message}${remedy(value, schema, instancePath)}`;
}

/** How to correct a value of the wrong type, if that is obvious. */
function remedy(value: unknown, schema: SchemaPart, path: string): string {
  const types = new Set([schema.type].flat());
  const isPlain = typeof value === 'number' || typeof value === 'boolean';
  if (types.has('string')) {
    // An address that ends with a colon is parsed as a key.
    if (schema.format === 'ipv6' && typeof value === 'object') return '; put it in quotes';
    return schema.format === undefined && isPlain ? `; put it in quotes: "${value}"` : '';
  }
  if (types.has('integer') && typeof value === 'string') {
    if (/^\d+$/.test(value)) return '; remove the quotes';
    if (path.endsWith('/targetport')) return "; a name belongs under 'targetportname'";
  }
  const [example] = schema.examples ?? [];
  return example === undefined ? '' : `, such as ${flowText(example)}`;
}

function range(schema: SchemaPart): string {
  return schema.minimum === undefined ? '' : ` (${schema.minimum} to ${schema.maximum})`;
}

function choices(value: unknown, allowed: readonly unknown[]): string {
  const words = allowed.filter((word) => word !== '' && word !== null);
  const texts = words.filter((word) => typeof word === 'string');
  const suggestion = typeof value === 'string' ? closest(value, texts) : undefined;
  if (suggestion !== undefined) return `; did you mean ${suggestion}?`;
  return ` (${words.join(', ')})`;
}

function addressHint(title: string, value: unknown): string {
  if (typeof value !== 'string') return '';
  if (title === 'IPv4 address' && isIPv6(value)) return "; it belongs under 'v6'";
  if (title !== 'IPv6 address') return '';
  if (isIPv4(value)) return "; it belongs under 'v4'";
  if (value.includes('%') && isIPv6(value)) return ': it has a zone';
  return isIPv6(value) ? ": it is an IPv4 address; write that under 'v4'" : '';
}

function withArticle(noun: string): string {
  if (noun === 'conditions' || noun === 'scopes' || noun.endsWith('hints'))
    return `a map of ${noun}`;
  if (noun.startsWith('addresses')) return `a map with the ${noun}`;
  return `${/^[aeioAEIO]/.test(noun) ? 'an' : 'a'} ${noun}`;
}

function show(value: unknown): string {
  if (value === null || value === undefined) return 'nothing';
  if (Array.isArray(value)) return 'a list';
  if (typeof value === 'object') return 'a map';
  if (typeof value === 'string') return JSON.stringify(shorten(value));
  return typeof value === 'number' || typeof value === 'boolean' ? String(value) : typeof value;
}

/** The steps of a JSON pointer; the value decides whether a number is an index. */
function pointerSegments(pointer: string, root: unknown): Segment[] {
  const segments: Segment[] = [];
  let value = root;
  for (const part of pointer.split('/').slice(1)) {
    const key = part.replaceAll('~1', '/').replaceAll('~0', '~');
    segments.push(Array.isArray(value) ? Number(key) : key);
    value = (value as Record<string, unknown>)[key];
  }
  return segments;
}
