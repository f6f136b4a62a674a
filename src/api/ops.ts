/**
 * Operations of the two APIs, decoded and checked.
 *
 * Decoding never throws. What cannot be used becomes an `invalid` operation whose error names the
 * set, the path and the reason, so that the rest of the change set can continue.
 */
import { KpngError, messageOf } from '../errors.ts';
import { EndpointInfo, NodeInfo, ServiceInfo } from './generated/globalv1/api.ts';
import { SHAPES } from './generated/shapes.ts';
import { Endpoint, OpItem, Service, Set as SetNumber } from './generated/localv1/api.ts';
import { servicePath } from './paths.ts';
import { checked, type Shape } from './wire.ts';

/**
 * The place of an entry in a state. The table `services` has services by `namespace/name`, and `nodes` has nodes by name.
 * Endpoints are in a table for each service, `namespace/name`, by the pod's name or a hash; those of the global API in one
 * for each `namespace|service|source`, by their hash: several services may name the same source.
 */
interface EntryRef {
  readonly table: string;
  readonly key: string;
}

/**
 * An operation on an entry: adds or replaces it, or removes it when `value` is undefined. An `invalid` one has a value that
 * was not understood (KPNG_OP_INVALID); the old value stays. Without an entry, it changes nothing.
 */
export type ChangeOp = { readonly entry: EntryRef | undefined } & (
  | { readonly kind: 'entry'; readonly value: object | undefined }
  | { readonly kind: 'invalid'; readonly error: KpngError }
);

/** `reset`: the full data set follows. `sync`: the change set is complete. */
export type StreamOp = ChangeOp | { readonly kind: 'reset' } | { readonly kind: 'sync' };

interface EntrySet {
  readonly kind: string;
  /** The form of a path, for messages. */
  readonly form: string;
  /** Its groups: the table, unless that is given, and the parts of the key. */
  readonly pattern: RegExp;
  readonly table?: string;
  readonly shape: Shape;
  /** Decodes checked bytes, and returns the path of the value, which must have the names in it. */
  decode(bytes: Uint8Array, key: string): readonly [value: object | undefined, path?: string];
}

/** By API, and the set's number. */
const SETS: Readonly<Record<'local' | 'global', Readonly<Record<number, EntrySet>>>> = {
  local: {
    [SetNumber.ServicesSet]: {
      kind: 'service',
      form: 'namespace/name',
      pattern: /^([^/]+)\/([^/]+)$/,
      table: 'services',
      shape: SHAPES['localv1.Service'],
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
      decode: (bytes) => [Endpoint.decode(bytes)],
    },
  },
  global: {
    [SetNumber.GlobalServiceInfos]: {
      kind: 'service',
      form: 'namespace|name||',
      pattern: /^([^|]+)\|([^|]+)\|\|$/,
      table: 'services',
      shape: SHAPES['globalv1.ServiceInfo'],
      decode(bytes) {
        const { service } = ServiceInfo.decode(bytes);
        return [service, `${service?.namespace ?? ''}|${service?.name ?? ''}||`];
      },
    },
    [SetNumber.GlobalEndpointInfos]: {
      kind: 'endpoint',
      form: 'namespace|service|source|hash',
      // Without the service's name it is kpng's second entry for an endpoint, a duplicate, and in no table.
      pattern: /^(?:([^|]+\|[^|]+\|[^|]*)|[^|]+\|\|[^|]*)\|([^|]+)$/,
      shape: SHAPES['globalv1.EndpointInfo'],
      decode(bytes, key) {
        const info = EndpointInfo.decode(bytes);
        return [info, `${info.namespace}|${info.serviceName}|${info.sourceName}|${key}`];
      },
    },
    [SetNumber.GlobalNodeInfos]: {
      kind: 'node',
      form: '|name||',
      pattern: /^\|([^|]+)\|\|$/,
      table: 'nodes',
      shape: SHAPES['globalv1.NodeInfo'],
      decode(bytes) {
        const { node } = NodeInfo.decode(bytes);
        return [node, `|${node?.name ?? ''}||`];
      },
    },
  },
};

export function decodeOp(api: 'local' | 'global', bytes: Uint8Array): StreamOp {
  let item: OpItem;
  try {
    item = OpItem.decode(checked(bytes, SHAPES['localv1.OpItem']));
  } catch (cause) {
    return invalid('An operation cannot be decoded', cause);
  }
  const { op } = item;
  if (op === undefined) return invalid('Unknown kind of operation');
  if (op.$case === 'reset' || op.$case === 'sync') return { kind: op.$case };
  const verb = op.$case === 'set' ? 'Set' : 'Delete';
  const { set, path } = op.$case === 'set' ? (op.value.ref ?? { set: 0, path: '' }) : op.value;
  const entries = SETS[api][set];
  if (entries === undefined) {
    return invalid(`${verb} of ${quote(path)}: the set ${set} does not belong to the ${api} API`);
  }
  const { kind, form, shape } = entries;
  const parts = entries.pattern.exec(path);
  if (parts === null) {
    return invalid(`${verb} of ${kind}: the path ${quote(path)} is not ${form}`);
  }
  const key = parts.slice(entries.table === undefined ? 2 : 1).join('/');
  const table = entries.table ?? parts[1];
  const entry = table === undefined ? undefined : { table, key };
  if (op.$case === 'delete') return { kind: 'entry', entry, value: undefined };
  try {
    const [value, own = path] = entries.decode(checked(op.value.bytes, shape), key);
    if (own !== path && entry) throw new Error(`the ${kind} calls itself ${quote(own)}`);
    return { kind: 'entry', entry, value };
  } catch (cause) {
    return invalid(`Set of ${kind} ${quote(path)}`, cause, entry);
  }
}

function invalid(what: string, cause?: unknown, entry?: EntryRef): StreamOp {
  const message = cause === undefined ? `${what}.` : `${what}: ${messageOf(cause)}.`;
  return { kind: 'invalid', entry, error: new KpngError('KPNG_OP_INVALID', message, { cause }) };
}

/** For messages: escaped, and shortened to a line or two. */
export function quote(text: string): string {
  return JSON.stringify(text.length > 300 ? `${text.slice(0, 300)}...` : text);
}
