/**
 * Operations of the two APIs, decoded and checked.
 *
 * Decoding never throws. What cannot be used becomes an `invalid` operation whose error names the
 * set, the path and the reason, so that the rest of the change set can continue.
 */
import { KpngError, messageOf } from '../errors.ts';
import { Endpoint, OpItem, Service, Set as SetNumber } from './generated/localv1/api.ts';
import { parseEndpointPath, parseServicePath, servicePath } from './paths.ts';
import { ENDPOINT, OP_ITEM, SERVICE } from './shapes.ts';
import { wireProblem, type Shape } from './wire.ts';

/** An operation that cannot be used. */
export interface InvalidOp<Target = LocalTarget> {
  readonly kind: 'invalid';
  /** Code KPNG_OP_INVALID. */
  readonly error: KpngError;
  /** The entry whose new value was not understood; its old value stays. */
  readonly target: Target | undefined;
}

/** `reset`: the full data set follows. `sync`: the change set is complete. */
export type StreamOp = { readonly kind: 'reset' } | { readonly kind: 'sync' };

const RESET = { kind: 'reset' } as const;
const SYNC = { kind: 'sync' } as const;

/** The entry that a path names. */
export interface Entry<Op, Target> {
  readonly target: Target;
  readonly deleted: Op;
  /** Decodes checked bytes. Throws an Error for the value of another entry. */
  readonly decode: (bytes: Uint8Array) => Op;
}

/** The entries of one set. */
export interface EntrySet<Op, Target> {
  /** For messages: `service`. */
  readonly noun: string;
  /** The form of a path, for messages. */
  readonly form: string;
  readonly shape: Shape;
  /** Undefined: not a path of this set. */
  readonly entry: (path: string) => Entry<Op, Target> | undefined;
}

/** The sets of an API, by number. */
export interface OpSets<Op, Target> {
  /** For messages: `local API`. */
  readonly api: string;
  readonly sets: Readonly<Partial<Record<number, EntrySet<Op, Target>>>>;
}

/** Decodes an OpItem and its value. */
export function decodeOp<Op, Target>(
  bytes: Uint8Array,
  { api, sets }: OpSets<Op, Target>,
): Op | InvalidOp<Target> | StreamOp {
  let item: OpItem;
  try {
    item = OpItem.decode(checked(bytes, OP_ITEM));
  } catch (cause) {
    return invalid('An operation cannot be decoded', cause);
  }
  const { op } = item;
  if (op === undefined) return invalid('Unknown kind of operation');
  if (op.$case === 'reset') return RESET;
  if (op.$case === 'sync') return SYNC;
  const verb = op.$case === 'set' ? 'Set' : 'Delete';
  const { set, path } = op.$case === 'set' ? (op.value.ref ?? { set: 0, path: '' }) : op.value;
  const entries = sets[set];
  if (entries === undefined) {
    return invalid(`${verb} of ${quote(path)}: the set ${set} does not belong to the ${api}`);
  }
  const { noun, form, shape } = entries;
  const entry = entries.entry(path);
  if (entry === undefined) {
    return invalid(`${verb} of ${noun}: the path ${quote(path)} is not ${form}`);
  }
  if (op.$case === 'delete') return entry.deleted;
  try {
    return entry.decode(checked(op.value.bytes, shape));
  } catch (cause) {
    return invalid(`Set of ${noun} ${quote(path)}`, cause, entry.target);
  }
}

function checked(bytes: Uint8Array, shape: Shape): Uint8Array {
  const problem = wireProblem(bytes, shape);
  if (problem !== undefined) throw new Error(problem);
  return bytes;
}

function invalid<Target>(what: string, cause?: unknown, target?: Target): InvalidOp<Target> {
  const message = cause === undefined ? `${what}.` : `${what}: ${messageOf(cause)}.`;
  return { kind: 'invalid', error: new KpngError('KPNG_OP_INVALID', message, { cause }), target };
}

/** For messages: escaped, and shortened to a line or two. */
export function quote(text: string): string {
  return JSON.stringify(text.length > 300 ? `${text.slice(0, 300)}...` : text);
}

/** An entry of the local API. `service` is the service's key, `namespace/name`. */
export type LocalTarget =
  | { readonly kind: 'service'; readonly service: string }
  | { readonly kind: 'endpoint'; readonly service: string; readonly endpoint: string };

/** An operation on the data of the local API. `key`: of the service. */
export type DataOp =
  | { readonly kind: 'setService'; readonly key: string; readonly service: Service }
  | { readonly kind: 'deleteService'; readonly key: string }
  | {
      readonly kind: 'setEndpoint';
      readonly key: string;
      readonly endpointKey: string;
      readonly endpoint: Endpoint;
    }
  | { readonly kind: 'deleteEndpoint'; readonly key: string; readonly endpointKey: string };

export type LocalOp = DataOp | InvalidOp | StreamOp;

const LOCAL: OpSets<DataOp, LocalTarget> = {
  api: 'local API',
  sets: {
    [SetNumber.ServicesSet]: {
      noun: 'service',
      form: 'namespace/name',
      shape: SERVICE,
      entry: (path) =>
        parseServicePath(path) && {
          target: { kind: 'service', service: path },
          deleted: { kind: 'deleteService', key: path },
          // Delete and its endpoints refer to the names in the path.
          decode(bytes) {
            const service = Service.decode(bytes);
            const key = servicePath(service.namespace, service.name);
            if (key !== path) throw new Error(`the service calls itself ${quote(key)}`);
            return { kind: 'setService', key, service };
          },
        },
    },
    [SetNumber.EndpointsSet]: {
      noun: 'endpoint',
      form: 'namespace/service/key',
      shape: ENDPOINT,
      entry(path) {
        const parts = parseEndpointPath(path);
        if (parts === undefined) return undefined;
        const key = servicePath(parts.namespace, parts.name);
        const { key: endpointKey } = parts;
        return {
          target: { kind: 'endpoint', service: key, endpoint: endpointKey },
          deleted: { kind: 'deleteEndpoint', key, endpointKey },
          decode: (bytes) => ({
            kind: 'setEndpoint',
            key,
            endpointKey,
            endpoint: Endpoint.decode(bytes),
          }),
        };
      },
    },
  },
};

/** Decodes an operation of the local API. */
export function decodeLocalOp(bytes: Uint8Array): LocalOp {
  return decodeOp(bytes, LOCAL);
}
