/**
 * Operations of the global API, decoded and checked. As with the local ones, decoding never throws:
 * what cannot be used becomes an `invalid` operation.
 */
import { KpngError, messageOf } from '../errors.ts';
import { EndpointInfo, NodeInfo, ServiceInfo, type Node } from './generated/globalv1/api.ts';
import { Set as SetNumber, type OpItem, type Service } from './generated/localv1/api.ts';
import { decodeOpItem, quote } from './ops.ts';
import {
  globalEndpointPath,
  globalServicePath,
  parseGlobalEndpointPath,
  parseGlobalNodePath,
  parseGlobalServicePath,
  type GlobalEndpointRef,
  type ServiceRef,
} from './paths.ts';
import { ENDPOINT_INFO, NODE_INFO, SERVICE_INFO } from './shapes.ts';
import { wireProblem, type Shape } from './wire.ts';

/** The parts of a path. */
export type GlobalTarget =
  | { readonly kind: 'service'; readonly service: ServiceRef }
  | { readonly kind: 'endpoint'; readonly endpoint: GlobalEndpointRef }
  | { readonly kind: 'node'; readonly node: string };

/** Adds or replaces an entry, or removes it when `value` is undefined. */
export type GlobalDataOp =
  | { readonly kind: 'service'; readonly ref: ServiceRef; readonly value: Service | undefined }
  | {
      readonly kind: 'endpoint';
      readonly ref: GlobalEndpointRef;
      readonly value: EndpointInfo | undefined;
    }
  | { readonly kind: 'node'; readonly ref: string; readonly value: Node | undefined };

export interface InvalidGlobalOp {
  readonly kind: 'invalid';
  /** Code KPNG_OP_INVALID. */
  readonly error: KpngError;
  /** The entry whose new value was not understood; its old value stays. */
  readonly target: GlobalTarget | undefined;
}

/** An operation of the global API. */
export type GlobalOp =
  | GlobalDataOp
  | InvalidGlobalOp
  /** kpng's second entry for each endpoint, a duplicate. */
  | { readonly kind: 'repeated' }
  | { readonly kind: 'reset' }
  | { readonly kind: 'sync' };

/** Decodes an OpItem and its value. */
export function decodeGlobalOp(bytes: Uint8Array): GlobalOp {
  const item = decodeOpItem(bytes);
  return item instanceof KpngError
    ? { kind: 'invalid', error: item, target: undefined }
    : globalOp(item);
}

function globalOp({ op }: OpItem): GlobalOp {
  switch (op?.$case) {
    case 'reset':
    case 'sync':
      return { kind: op.$case };
    case 'set': {
      const { ref, bytes } = op.value;
      return withTarget('Set', ref ?? { set: 0, path: '' }, (target) => setOp(target, bytes));
    }
    case 'delete':
      return withTarget('Delete', op.value, deleteOp);
    case undefined:
      break;
  }
  return invalid('Unknown kind of operation.');
}

function deleteOp(target: GlobalTarget): GlobalOp {
  if (target.kind === 'service') return { kind: 'service', ref: target.service, value: undefined };
  if (target.kind === 'node') return { kind: 'node', ref: target.node, value: undefined };
  return { kind: 'endpoint', ref: target.endpoint, value: undefined };
}

const SHAPES: Readonly<Record<GlobalTarget['kind'], Shape>> = {
  service: SERVICE_INFO,
  endpoint: ENDPOINT_INFO,
  node: NODE_INFO,
};

/** A value must have the names of its path, which Delete refers to. */
function setOp(target: GlobalTarget, bytes: Uint8Array): GlobalOp {
  const problem = wireProblem(bytes, SHAPES[target.kind]);
  if (problem !== undefined) return badValue(target, problem);
  try {
    return decoded(target, bytes);
  } catch (cause) {
    return badValue(target, messageOf(cause), cause);
  }
}

function decoded(target: GlobalTarget, bytes: Uint8Array): GlobalOp {
  if (target.kind === 'service') {
    const { service } = ServiceInfo.decode(bytes);
    const { namespace, name } = target.service;
    if (service?.namespace !== namespace || service.name !== name) {
      return badValue(target, 'the service has other names');
    }
    return { kind: 'service', ref: target.service, value: service };
  }
  if (target.kind === 'node') {
    const { node } = NodeInfo.decode(bytes);
    if (node?.name !== target.node) return badValue(target, 'the node has another name');
    return { kind: 'node', ref: target.node, value: node };
  }
  const info = EndpointInfo.decode(bytes);
  const { namespace, serviceName, sourceName } = target.endpoint;
  const same =
    info.namespace === namespace &&
    info.serviceName === serviceName &&
    info.sourceName === sourceName;
  if (!same) return badValue(target, 'the endpoint has other names');
  return { kind: 'endpoint', ref: target.endpoint, value: info };
}

function withTarget(
  verb: 'Set' | 'Delete',
  ref: { readonly set: number; readonly path: string },
  then: (target: GlobalTarget) => GlobalOp,
): GlobalOp {
  const bad = (what: string, form: string): GlobalOp =>
    invalid(`${verb} of ${what}: the path ${quote(ref.path)} is not ${form}.`);
  switch (ref.set) {
    case SetNumber.GlobalServiceInfos: {
      const service = parseGlobalServicePath(ref.path);
      if (service === undefined) return bad('a service', 'namespace|name||');
      return then({ kind: 'service', service });
    }
    case SetNumber.GlobalEndpointInfos: {
      const endpoint = parseGlobalEndpointPath(ref.path);
      if (endpoint === undefined) return bad('an endpoint', 'namespace|service|source|hash');
      return endpoint.serviceName === ''
        ? { kind: 'repeated' }
        : then({ kind: 'endpoint', endpoint });
    }
    case SetNumber.GlobalNodeInfos: {
      const node = parseGlobalNodePath(ref.path);
      return node === undefined ? bad('a node', '|name||') : then({ kind: 'node', node });
    }
    default:
      return invalid(
        `${verb} of ${quote(ref.path)}: the set ${ref.set} does not belong to the global API.`,
      );
  }
}

function badValue(target: GlobalTarget, problem: string, cause?: unknown): InvalidGlobalOp {
  return invalid(`Set of ${describe(target)}: ${problem}.`, target, cause);
}

function describe(target: GlobalTarget): string {
  if (target.kind === 'node') return `node ${quote(target.node)}`;
  if (target.kind === 'endpoint') return `endpoint ${quote(globalEndpointPath(target.endpoint))}`;
  const { namespace, name } = target.service;
  return `service ${quote(globalServicePath(namespace, name))}`;
}

function invalid(message: string, target?: GlobalTarget, cause?: unknown): InvalidGlobalOp {
  return { kind: 'invalid', error: new KpngError('KPNG_OP_INVALID', message, { cause }), target };
}
