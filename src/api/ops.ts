/**
 * Operations of the two APIs, decoded and checked.
 *
 * Decoding never throws. What cannot be used becomes an `invalid` operation whose error names the
 * set, the path and the reason, so that the rest of the change set can continue.
 */
import { KpngError, messageOf } from '../errors.ts';
import { Endpoint, OpItem, Service, Set as SetNumber } from './generated/localv1/api.ts';
import {
  type LocalEndpointRef,
  parseEndpointPath,
  parseServicePath,
  servicePath,
} from './paths.ts';
import { checked, ENDPOINT, OP_ITEM, SERVICE, type Shape } from './wire.ts';

interface InvalidOp<Target> {
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

/** An operation on an entry: adds or replaces it, or removes it when `value` is undefined. */
export interface EntryOp<Kind extends string, Ref, Value extends object> {
  readonly kind: Kind;
  /** What the path names. */
  readonly ref: Ref;
  readonly value: Value | undefined;
}

export type AnyOp = EntryOp<string, unknown, object>;

type TargetOf<Op> = Op extends AnyOp ? Pick<Op, 'kind' | 'ref'> : never;

export type ChangeOp<Op> = Op | InvalidOp<TargetOf<Op>>;

export interface EntrySet<Op extends AnyOp> {
  readonly kind: Op['kind'];
  /** The form of a path, for messages. */
  readonly form: string;
  readonly shape: Shape;
  /** Undefined: not a path of this set. */
  parse(path: string): Op['ref'] | undefined;
  /** Decodes checked bytes. Throws an Error for the value of another entry. */
  decode(bytes: Uint8Array, ref: Op['ref']): Op['value'];
}

/** The sets of an API, by number. */
export interface OpSets<Op extends AnyOp> {
  /** For messages: `local API`. */
  readonly api: string;
  readonly sets: Readonly<Partial<Record<number, EntrySet<Op>>>>;
}

export function decodeOp<Op extends AnyOp>(
  bytes: Uint8Array,
  { api, sets }: OpSets<Op>,
): ChangeOp<Op> | StreamOp {
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
  const { kind, form, shape } = entries;
  const ref = entries.parse(path);
  if (ref === undefined) {
    return invalid(`${verb} of ${kind}: the path ${quote(path)} is not ${form}`);
  }
  let value: Op['value'];
  try {
    if (op.$case === 'set') value = entries.decode(checked(op.value.bytes, shape), ref);
  } catch (cause) {
    return invalid(`Set of ${kind} ${quote(path)}`, cause, { kind, ref } as TargetOf<Op>);
  }
  return { kind, ref, value } as Op;
}

function invalid<Target>(what: string, cause?: unknown, target?: Target): InvalidOp<Target> {
  const message = cause === undefined ? `${what}.` : `${what}: ${messageOf(cause)}.`;
  return { kind: 'invalid', error: new KpngError('KPNG_OP_INVALID', message, { cause }), target };
}

/** For messages: escaped, and shortened to a line or two. */
export function quote(text: string): string {
  return JSON.stringify(text.length > 300 ? `${text.slice(0, 300)}...` : text);
}

/** An operation on the data of the local API. A service's ref is its key, `namespace/name`. */
export type DataOp =
  EntryOp<'service', string, Service> | EntryOp<'endpoint', LocalEndpointRef, Endpoint>;

export type LocalOp = ChangeOp<DataOp> | StreamOp;

const LOCAL: OpSets<DataOp> = {
  api: 'local API',
  sets: {
    [SetNumber.ServicesSet]: {
      kind: 'service',
      form: 'namespace/name',
      shape: SERVICE,
      parse: parseServicePath,
      // Delete and its endpoints refer to the names in the path.
      decode(bytes, path) {
        const service = Service.decode(bytes);
        const key = servicePath(service.namespace, service.name);
        if (key !== path) throw new Error(`the service calls itself ${quote(key)}`);
        return service;
      },
    },
    [SetNumber.EndpointsSet]: {
      kind: 'endpoint',
      form: 'namespace/service/key',
      shape: ENDPOINT,
      parse: parseEndpointPath,
      decode: (bytes) => Endpoint.decode(bytes),
    },
  },
};

export function decodeLocalOp(bytes: Uint8Array): LocalOp {
  return decodeOp(bytes, LOCAL);
}
