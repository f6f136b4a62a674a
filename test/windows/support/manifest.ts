import * as models from '@kubernetes/client-node';

/** A part of a manifest, as YAML gives it. */
export type Node = Readonly<Record<string, unknown>>;

interface Attribute {
  readonly baseName: string;
  readonly type: string;
}

/** What is wrong with a value that should be of a type of the Kubernetes API: unknown fields and wrong types. */
export function problemsOf(type: string, value: unknown, path = type): string[] {
  const list = /^Array<(.*)>$/.exec(type);
  if (list !== null) {
    if (!Array.isArray(value)) return [`${path}: expected a list`];
    return value.flatMap((each, index) => problemsOf(list[1] ?? '', each, `${path}[${index}]`));
  }
  const map = /^\{ \[key: string\]: (.*); \}$/.exec(type);
  if (map !== null) {
    return Object.entries(value as Node).flatMap(([key, each]) =>
      problemsOf(map[1] ?? '', each, `${path}.${key}`),
    );
  }
  if (['string', 'number', 'boolean'].includes(type)) {
    return typeof value === type
      ? []
      : [`${path}: expected a ${type}, not ${JSON.stringify(value)}`];
  }
  if (['IntOrString', 'any', 'object'].includes(type)) return [];
  const model = (models as unknown as Readonly<Record<string, unknown>>)[type] as
    { getAttributeTypeMap?: () => readonly Attribute[] } | undefined;
  const attributes = model?.getAttributeTypeMap?.();
  if (attributes === undefined) return [`${path}: there is no ${type}`];
  return Object.entries(value as Node).flatMap(([key, each]) => {
    const attribute = attributes.find(({ baseName }) => baseName === key);
    if (attribute === undefined) return [`${path}.${key}: unknown field`];
    return problemsOf(attribute.type, each, `${path}.${key}`);
  });
}

/** The type of a manifest: `apps/v1`, `DaemonSet` is V1DaemonSet. */
export function typeOf({ apiVersion, kind }: Node): string {
  const version = String(apiVersion).split('/').at(-1) ?? '';
  return `${version.charAt(0).toUpperCase()}${version.slice(1)}${String(kind)}`;
}
