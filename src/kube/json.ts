import { servicePath } from '../api/paths.ts';
import { KpngError } from '../errors.ts';

/**
 * Accessors for JSON of unknown shape. A value of the wrong type counts as absent: an API server validates its
 * objects, so this only makes odd ones harmless.
 */
export type Json = Readonly<Record<string, unknown>>;

const NOTHING: Json = {};

/** The object, or an empty one. */
export function object(value: unknown): Json {
  return isObject(value) ? value : NOTHING;
}

export function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The list, or an empty one. */
export function list(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

/** The text, or an empty one. */
export function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

/** Those items of a list that are texts and not empty. */
export function texts(value: unknown): string[] {
  return list(value).filter((item): item is string => typeof item === 'string' && item !== '');
}

/** The number if it is whole and fits an int32 of protobuf, else 0. */
export function whole(value: unknown): number {
  return typeof value === 'number' && (value | 0) === value ? value : 0;
}

export function nameOf(raw: Json): { readonly namespace: string; readonly name: string } {
  const metadata = object(raw['metadata']);
  return { namespace: text(metadata['namespace']), name: text(metadata['name']) };
}

/** The key of an object: `namespace/name`, or the name of a node. KPNG_OP_INVALID when it lacks one. */
export function keyOf(kind: string, raw: Json): string | KpngError {
  const { namespace, name } = nameOf(raw);
  if (name !== '' && (namespace === '') === (kind === 'Node')) {
    return namespace === '' ? name : servicePath(namespace, name);
  }
  return new KpngError(
    'KPNG_OP_INVALID',
    `${kind} ${JSON.stringify(name)} in namespace ${JSON.stringify(namespace)}: ` +
      'the object has no name or namespace; it is skipped.',
  );
}

/** The object's or list's version; undefined when it has none. */
export function versionOf(raw: Json): string | undefined {
  const version = text(object(raw['metadata'])['resourceVersion']);
  return version === '' ? undefined : version;
}

/**
 * Whether one version of the state is older than another. Versions are opaque texts, but all servers use
 * numbers; anything else has no order.
 */
export function isOlder(version: string, than: string): boolean {
  if (version === than || !/^\d+$/.test(version) || !/^\d+$/.test(than)) return false;
  return BigInt(version) < BigInt(than);
}
