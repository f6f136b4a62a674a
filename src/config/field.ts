export type JsonType = 'string' | 'integer' | 'boolean' | 'array';

/** The format of a value, as a part of the JSON schema. */
export interface FieldSchema {
  readonly type: JsonType | readonly JsonType[];
  readonly enum?: readonly string[];
  readonly pattern?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly items?: { readonly type: 'string'; readonly pattern?: string };
}

/** apiVersion and kind of our own document. Its fields are the flags, in camel case, and the words of a command line. */
export const OWN_API_VERSION = 'kpng-userspace/v1alpha1';
export const OWN_KIND = 'UserspaceProxyConfiguration';
export const OWN_COMMAND = 'command';

/** The flags that a configuration file may set, by name without dashes. `parse` throws an Error for a wrong text. */
export type Fields = ReadonlyMap<
  string,
  { readonly kind: { readonly schema: FieldSchema; parse(text: string): unknown } }
>;

/** The field name of a flag: `metrics-bind-address` is `metricsBindAddress`. */
export function fieldName(flag: string): string {
  return flag.replace(/-([a-z\d])/g, (_, first: string) => first.toUpperCase());
}

/**
 * A value from a file as the text of its flag. Undefined for null, which sets nothing. Throws an Error that names the
 * expected type.
 */
export function textOf(value: unknown, { type }: FieldSchema): string | undefined {
  if (value === null || value === undefined) return undefined;
  const allowed: readonly JsonType[] = typeof type === 'string' ? [type] : type;
  if (Array.isArray(value) && allowed.includes('array')) {
    const items: readonly unknown[] = value;
    const strings = items.filter((item) => typeof item === 'string');
    if (strings.length === items.length) return strings.join(',');
    throw new Error('expected a list of texts, such as [250ms, 1s]');
  }
  if (typeof value === 'string' && allowed.includes('string')) return value;
  if (typeof value === 'string' && allowed.includes('array')) return value;
  if (typeof value === 'boolean' && allowed.includes('boolean')) return String(value);
  if (typeof value === 'number' && allowed.includes('integer')) return String(value);
  throw new Error(`expected ${allowed.map((each) => TYPE_WORDS[each]).join(' or ')}`);
}

const TYPE_WORDS: Readonly<Record<JsonType, string>> = {
  string: 'a text',
  integer: 'a whole number',
  boolean: 'true or false',
  array: 'a list',
};
