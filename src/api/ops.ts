/**
 * Operations of the local API, decoded and checked.
 *
 * Decoding never throws. What cannot be used becomes an `invalid` operation whose error names the
 * set, the path and the reason, so that the rest of the change set can continue.
 */
import { KpngError, messageOf } from '../errors.ts';
import {
  Endpoint,
  OpItem,
  Service,
  Set as SetNumber,
  type Value,
} from './generated/localv1/api.ts';
import { parseEndpointPath, parseServicePath, servicePath } from './paths.ts';
import { ENDPOINT, OP_ITEM, SERVICE } from './shapes.ts';
import { wireProblem } from './wire.ts';

/** The parts of a path. `service` is the service's key, `namespace/name`. */
export type Target =
  | { readonly kind: 'service'; readonly service: string }
  | { readonly kind: 'endpoint'; readonly service: string; readonly endpoint: string };

/** An operation on the data, as opposed to the stream. */
export type DataOp =
  | { readonly kind: 'setService'; readonly key: string; readonly service: Service }
  | { readonly kind: 'deleteService'; readonly key: string }
  | {
      readonly kind: 'setEndpoint';
      /** Key of the service. */
      readonly key: string;
      readonly endpointKey: string;
      readonly endpoint: Endpoint;
    }
  | { readonly kind: 'deleteEndpoint'; readonly key: string; readonly endpointKey: string };

/** An operation that cannot be used. */
export interface InvalidOp {
  readonly kind: 'invalid';
  /** Code KPNG_OP_INVALID. */
  readonly error: KpngError;
  /** The entry whose new value was not understood; its old value stays. */
  readonly target: Target | undefined;
}

/** An operation of the local API. `reset`: the full data set follows. `sync`: the change set is complete. */
export type LocalOp = DataOp | InvalidOp | { readonly kind: 'reset' } | { readonly kind: 'sync' };

const RESET = { kind: 'reset' } as const;
const SYNC = { kind: 'sync' } as const;

/** Decodes an OpItem and its value. */
export function decodeLocalOp(bytes: Uint8Array): LocalOp {
  const item = decodeOpItem(bytes);
  return item instanceof KpngError
    ? { kind: 'invalid', error: item, target: undefined }
    : localOp(item);
}

/** Decodes an OpItem of either API, but not its value. Returns the error, if any. */
export function decodeOpItem(bytes: Uint8Array): OpItem | KpngError {
  const problem = wireProblem(bytes, OP_ITEM);
  if (problem !== undefined) return undecodable(problem);
  try {
    return OpItem.decode(bytes);
  } catch (cause) {
    return undecodable(messageOf(cause), cause);
  }
}

function undecodable(problem: string, cause?: unknown): KpngError {
  const message = `An operation cannot be decoded: ${problem}.`;
  return new KpngError('KPNG_OP_INVALID', message, { cause });
}

/** Checks a decoded OpItem and decodes the value in it. */
export function localOp({ op }: OpItem): LocalOp {
  switch (op?.$case) {
    case 'reset':
      return RESET;
    case 'sync':
      return SYNC;
    case 'set':
      return setOp(op.value);
    case 'delete':
      return withTarget('Delete', op.value, (target) =>
        target.kind === 'service'
          ? { kind: 'deleteService', key: target.service }
          : { kind: 'deleteEndpoint', key: target.service, endpointKey: target.endpoint },
      );
    case undefined:
      break;
  }
  return invalid('Unknown kind of operation.');
}

function setOp({ ref, bytes }: Value): LocalOp {
  return withTarget('Set', ref ?? { set: 0, path: '' }, (target) => {
    try {
      return target.kind === 'service' ? setService(target, bytes) : setEndpoint(target, bytes);
    } catch (cause) {
      return badValue(target, messageOf(cause), cause);
    }
  });
}

/** A service must have the names of its path, which Delete and its endpoints refer to. */
function setService(target: Target & { kind: 'service' }, bytes: Uint8Array): LocalOp {
  const problem = wireProblem(bytes, SERVICE);
  if (problem !== undefined) return badValue(target, problem);
  const service = Service.decode(bytes);
  const key = servicePath(service.namespace, service.name);
  if (key !== target.service) return badValue(target, `the service calls itself ${quote(key)}`);
  return { kind: 'setService', key, service };
}

function setEndpoint(target: Target & { kind: 'endpoint' }, bytes: Uint8Array): LocalOp {
  const problem = wireProblem(bytes, ENDPOINT);
  if (problem !== undefined) return badValue(target, problem);
  const endpoint = Endpoint.decode(bytes);
  return { kind: 'setEndpoint', key: target.service, endpointKey: target.endpoint, endpoint };
}

function withTarget(
  verb: 'Set' | 'Delete',
  ref: { readonly set: number; readonly path: string },
  then: (target: Target) => LocalOp,
): LocalOp {
  switch (ref.set) {
    case SetNumber.ServicesSet: {
      const parts = parseServicePath(ref.path);
      if (parts === undefined) {
        return invalid(`${verb} of a service: the path ${quote(ref.path)} is not namespace/name.`);
      }
      return then({ kind: 'service', service: ref.path });
    }
    case SetNumber.EndpointsSet: {
      const parts = parseEndpointPath(ref.path);
      if (parts === undefined) {
        const wanted = 'namespace/service/key';
        return invalid(`${verb} of an endpoint: the path ${quote(ref.path)} is not ${wanted}.`);
      }
      const service = servicePath(parts.namespace, parts.name);
      return then({ kind: 'endpoint', service, endpoint: parts.key });
    }
    default:
      return invalid(
        `${verb} of ${quote(ref.path)}: the set ${ref.set} does not belong to the local API.`,
      );
  }
}

function badValue(target: Target, problem: string, cause?: unknown): InvalidOp {
  const what =
    target.kind === 'service'
      ? `Set of service ${quote(target.service)}`
      : `Set of endpoint ${quote(`${target.service}/${target.endpoint}`)}`;
  return invalid(`${what}: ${problem}.`, target, cause);
}

function invalid(message: string, target?: Target, cause?: unknown): InvalidOp {
  return { kind: 'invalid', error: new KpngError('KPNG_OP_INVALID', message, { cause }), target };
}

/** For messages: escaped, and shortened to a line or two. */
export function quote(text: string): string {
  return JSON.stringify(text.length > 300 ? `${text.slice(0, 300)}...` : text);
}
