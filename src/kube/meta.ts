import { KpngError } from '../errors.ts';
import { object, text, type Json } from './json.ts';

export interface ObjectName {
  /** Empty for what is in none, such as nodes. */
  readonly namespace: string;
  readonly name: string;
}

/** What an object is called, and its version. Throws KPNG_OP_INVALID when it has no name. */
export function nameOf(kind: string, raw: Json, namespaced: boolean): ObjectName {
  const metadata = object(raw['metadata']);
  const name = text(metadata['name']);
  const namespace = text(metadata['namespace']);
  if (name !== '' && namespaced === (namespace !== '')) return { namespace, name };
  throw new KpngError(
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
 * Whether one version of the state is older than another. Versions are opaque texts, but all servers
 * have numbers for them; anything else is in no order.
 */
export function isOlder(version: string, than: string): boolean {
  if (version === than || !/^\d+$/.test(version) || !/^\d+$/.test(than)) return false;
  return BigInt(version) < BigInt(than);
}
