/**
 * Operations of the two APIs, decoded and checked.
 *
 * Decoding never throws. What cannot be used becomes an `invalid` operation whose error names the
 * set, the path and the reason, so that the rest of the change set can continue.
 */
import { KpngError, messageOf } from '../errors.ts';
import { EndpointInfo, NodeInfo, ServiceInfo, type Node } from './generated/globalv1/api.ts';
import { SHAPES } from './generated/shapes.ts';
import { Endpoint, OpItem, Service, Set as SetNumber } from './generated/localv1/api.ts';
import {
  type GlobalEndpointRef,
  globalEndpointPath,
  globalNodePath,
  globalServicePath,
  servicePath,
} from './paths.ts';
import { checked, type Shape } from './wire.ts';

interface InvalidOp<Target> {
  readonly kind: 'invalid';
  /** Code KPNG_OP_INVALID. */
  readonly error: KpngError;
  /** The entry whose new value was not understood; its old value stays. */
  readonly target: Target | undefined;
}

/** `reset`: the full data set follows. `sync`: the change set is complete. */
export type StreamOp = { readonly kind: 'reset' } | { readonly kind: 'sync' };

/** An operation on an entry: adds or replaces it, or removes it when `value` is undefined. */
interface EntryOp<Kind extends string, Ref, Value extends object> {
  readonly kind: Kind;
  /** What the path names. */
  readonly ref: Ref;
  readonly value: Value | undefined;
}

export type AnyOp = EntryOp<string, unknown, object>;

type TargetOf<Op> = Op extends AnyOp ? Pick<Op, 'kind' | 'ref'> : never;

export type ChangeOp<Op> = Op | InvalidOp<TargetOf<Op>>;

/**
 * An operation on the data of the local API. `namespace/name` is a service's ref, and the `service` of an endpoint; its
 * key, the pod's name or a hash, is unique there.
 */
export type DataOp =
  | EntryOp<'service', string, Service>
  | EntryOp<'endpoint', { readonly service: string; readonly key: string }, Endpoint>;

/**
 * An operation on the data of the global API. A service's ref is its key, `namespace/name`, that of a node its name. An
 * endpoint without a service's name is kpng's second entry for it, a duplicate.
 */
export type GlobalDataOp =
  | EntryOp<'service', string, Service>
  | EntryOp<'endpoint', GlobalEndpointRef, EndpointInfo>
  | EntryOp<'node', string, Node>;

interface EntrySet {
  readonly kind: string;
  /** The form of a path, for messages. */
  readonly form: string;
  readonly pattern: RegExp;
  readonly shape: Shape;
  /** `parts`: the groups of the pattern. */
  ref(parts: readonly string[]): unknown;
  /** Decodes checked bytes, and returns the path of the value, which must have the names in it. */
  decode(bytes: Uint8Array, ref: never): readonly [value: object | undefined, path?: string];
}

const LOCAL: Readonly<Record<number, EntrySet>> = {
  [SetNumber.ServicesSet]: {
    kind: 'service',
    form: 'namespace/name',
    pattern: /^([^/]+)\/([^/]+)$/,
    shape: SHAPES['localv1.Service'],
    ref: ([namespace = '', name = '']) => servicePath(namespace, name),
    decode(bytes) {
      const service = Service.decode(bytes);
      return [service, servicePath(service.namespace, service.name)];
    },
  },
  [SetNumber.EndpointsSet]: {
    kind: 'endpoint',
    form: 'namespace/service/key',
    // A server may put slashes into the key.
    pattern: /^([^/]+\/[^/]+)\/([^/].*)$/s,
    shape: SHAPES['localv1.Endpoint'],
    ref: ([service, key]) => ({ service, key }),
    decode: (bytes) => [Endpoint.decode(bytes)],
  },
};

const GLOBAL: Readonly<Record<number, EntrySet>> = {
  [SetNumber.GlobalServiceInfos]: {
    kind: 'service',
    form: 'namespace|name||',
    pattern: /^([^|]+)\|([^|]+)\|\|$/,
    shape: SHAPES['globalv1.ServiceInfo'],
    ref: ([namespace = '', name = '']) => servicePath(namespace, name),
    decode(bytes) {
      const { service } = ServiceInfo.decode(bytes);
      return [service, globalServicePath(service?.namespace ?? '', service?.name ?? '')];
    },
  },
  [SetNumber.GlobalEndpointInfos]: {
    kind: 'endpoint',
    form: 'namespace|service|source|hash',
    pattern: /^([^|]+)\|([^|]*)\|([^|]*)\|([^|]+)$/,
    shape: SHAPES['globalv1.EndpointInfo'],
    ref([namespace, serviceName, sourceName, key]) {
      return { namespace, serviceName, sourceName, key };
    },
    decode(bytes, { serviceName, key }: GlobalEndpointRef) {
      const info = EndpointInfo.decode(bytes);
      return serviceName === '' ? [info] : [info, globalEndpointPath({ ...info, key })];
    },
  },
  [SetNumber.GlobalNodeInfos]: {
    kind: 'node',
    form: '|name||',
    pattern: /^\|([^|]+)\|\|$/,
    shape: SHAPES['globalv1.NodeInfo'],
    ref: ([name]) => name,
    decode(bytes) {
      const { node } = NodeInfo.decode(bytes);
      return [node, globalNodePath(node?.name ?? '')];
    },
  },
};

export function decodeLocalOp(bytes: Uint8Array): ChangeOp<DataOp> | StreamOp {
  return decodeOp(bytes, LOCAL, 'local API') as ChangeOp<DataOp> | StreamOp;
}

export function decodeGlobalOp(bytes: Uint8Array): ChangeOp<GlobalDataOp> | StreamOp {
  return decodeOp(bytes, GLOBAL, 'global API') as ChangeOp<GlobalDataOp> | StreamOp;
}

function decodeOp(
  bytes: Uint8Array,
  sets: Readonly<Record<number, EntrySet>>,
  api: string,
): ChangeOp<AnyOp> | StreamOp {
  let item: OpItem;
  try {
    item = OpItem.decode(checked(bytes, SHAPES['localv1.OpItem']));
  } catch (cause) {
    return invalid('An operation cannot be decoded', cause);
  }
  const { op } = item;
  if (op === undefined) return invalid('Unknown kind of operation');
  if (op.$case === 'reset' || op.$case === 'sync') return { kind: op.$case } as StreamOp;
  const verb = op.$case === 'set' ? 'Set' : 'Delete';
  const { set, path } = op.$case === 'set' ? (op.value.ref ?? { set: 0, path: '' }) : op.value;
  const entries = sets[set];
  if (entries === undefined) {
    return invalid(`${verb} of ${quote(path)}: the set ${set} does not belong to the ${api}`);
  }
  const { kind, form, shape } = entries;
  const parts = entries.pattern.exec(path);
  if (parts === null) {
    return invalid(`${verb} of ${kind}: the path ${quote(path)} is not ${form}`);
  }
  const ref = entries.ref(parts.slice(1));
  if (op.$case === 'delete') return { kind, ref, value: undefined };
  try {
    const [value, own = path] = entries.decode(checked(op.value.bytes, shape), ref as never);
    if (own !== path) throw new Error(`the ${kind} calls itself ${quote(own)}`);
    return { kind, ref, value };
  } catch (cause) {
    return invalid(`Set of ${kind} ${quote(path)}`, cause, { kind, ref });
  }
}

function invalid<Target>(what: string, cause?: unknown, target?: Target): InvalidOp<Target> {
  const message = cause === undefined ? `${what}.` : `${what}: ${messageOf(cause)}.`;
  return { kind: 'invalid', error: new KpngError('KPNG_OP_INVALID', message, { cause }), target };
}

/** For messages: escaped, and shortened to a line or two. */
export function quote(text: string): string {
  return JSON.stringify(text.length > 300 ? `${text.slice(0, 300)}...` : text);
}
