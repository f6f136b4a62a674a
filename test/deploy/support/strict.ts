/** Checks objects against the types of the Kubernetes API, as `kubectl --validate=strict` does. */
import * as models from '@kubernetes/client-node';

interface Attribute {
  readonly baseName: string;
  readonly type: string;
}
interface Model {
  getAttributeTypeMap(): readonly Attribute[];
}

/** Kinds of Kubernetes itself; those of others are not in its types. */
const KINDS: Readonly<Record<string, string>> = {
  'v1 ServiceAccount': 'V1ServiceAccount',
  'apps/v1 DaemonSet': 'V1DaemonSet',
  'rbac.authorization.k8s.io/v1 ClusterRole': 'V1ClusterRole',
  'rbac.authorization.k8s.io/v1 ClusterRoleBinding': 'V1ClusterRoleBinding',
  'scheduling.k8s.io/v1 PriorityClass': 'V1PriorityClass',
};

export function isKnown({ apiVersion, kind }: { apiVersion: string; kind: string }): boolean {
  return `${apiVersion} ${kind}` in KINDS;
}

/** Everything that the API would refuse: fields that there are not, and values of the wrong type. */
export function problemsOf(object: { apiVersion: string; kind: string }): string[] {
  const type = KINDS[`${object.apiVersion} ${object.kind}`];
  return type === undefined ? [`${object.kind} is not known`] : check(object, type, object.kind);
}

function check(value: unknown, type: string, path: string): string[] {
  const list = /^Array<(.*)>$/.exec(type)?.[1];
  if (list !== undefined) {
    if (!Array.isArray(value)) return [`${path} is no list`];
    return value.flatMap((item, index) => check(item, list, `${path}[${index}]`));
  }
  const map = /^\{ \[key: string\]: (.*); \}$/.exec(type)?.[1];
  if (map !== undefined) {
    if (!isObject(value)) return [`${path} is no object`];
    return Object.entries(value).flatMap(([key, item]) => check(item, map, `${path}.${key}`));
  }
  if (type === 'IntOrString') {
    return ['number', 'string'].includes(typeof value) ? [] : [`${path} is no number or text`];
  }
  if (['string', 'number', 'boolean'].includes(type)) {
    return typeof value === type ? [] : [`${path} is ${JSON.stringify(value)}, no ${type}`];
  }
  const model = (models as unknown as Record<string, Partial<Model>>)[type];
  if (model?.getAttributeTypeMap === undefined) return [];
  if (!isObject(value)) return [`${path} is no object`];
  const attributes = new Map(model.getAttributeTypeMap().map((each) => [each.baseName, each.type]));
  return Object.entries(value).flatMap(([key, item]) => {
    const itemType = attributes.get(key);
    return itemType === undefined
      ? [`${path}.${key}: ${type} has no such field`]
      : check(item, itemType, `${path}.${key}`);
  });
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
