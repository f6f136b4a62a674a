/** Operations of the global API. */
import { EndpointInfo, NodeInfo, ServiceInfo, type Node } from './generated/globalv1/api.ts';
import { Set as SetNumber, type Service } from './generated/localv1/api.ts';
import { decodeOp, type InvalidOp, type OpSets, type StreamOp } from './ops.ts';
import {
  parseGlobalEndpointPath,
  parseGlobalNodePath,
  parseGlobalServicePath,
  type GlobalEndpointRef,
  type ServiceRef,
} from './paths.ts';
import { ENDPOINT_INFO, NODE_INFO, SERVICE_INFO } from './shapes.ts';

/** An entry, named by the parts of its path. */
export type GlobalTarget =
  | { readonly kind: 'service'; readonly ref: ServiceRef }
  | { readonly kind: 'endpoint'; readonly ref: GlobalEndpointRef }
  | { readonly kind: 'node'; readonly ref: string };

/** Adds or replaces an entry, or removes it when `value` is undefined. */
export type GlobalDataOp =
  | { readonly kind: 'service'; readonly ref: ServiceRef; readonly value: Service | undefined }
  | {
      readonly kind: 'endpoint';
      readonly ref: GlobalEndpointRef;
      readonly value: EndpointInfo | undefined;
    }
  | { readonly kind: 'node'; readonly ref: string; readonly value: Node | undefined };

export type InvalidGlobalOp = InvalidOp<GlobalTarget>;

/** kpng's second entry for each endpoint, a duplicate. */
interface RepeatedOp {
  readonly kind: 'repeated';
}
const REPEATED: RepeatedOp = { kind: 'repeated' };

/** An operation of the global API. */
export type GlobalOp = GlobalDataOp | RepeatedOp | InvalidGlobalOp | StreamOp;

/** A value must have the names of its path, which Delete refers to. */
const GLOBAL: OpSets<GlobalDataOp | RepeatedOp, GlobalTarget> = {
  api: 'global API',
  sets: {
    [SetNumber.GlobalServiceInfos]: {
      noun: 'service',
      form: 'namespace|name||',
      shape: SERVICE_INFO,
      entry(path) {
        const ref = parseGlobalServicePath(path);
        if (ref === undefined) return undefined;
        return {
          target: { kind: 'service', ref },
          deleted: { kind: 'service', ref, value: undefined },
          decode(bytes) {
            const { service: value } = ServiceInfo.decode(bytes);
            const isSame = value?.namespace === ref.namespace && value.name === ref.name;
            if (!isSame) throw new Error('the service has other names');
            return { kind: 'service', ref, value };
          },
        };
      },
    },
    [SetNumber.GlobalEndpointInfos]: {
      noun: 'endpoint',
      form: 'namespace|service|source|hash',
      shape: ENDPOINT_INFO,
      entry(path) {
        const ref = parseGlobalEndpointPath(path);
        if (ref === undefined) return undefined;
        const isRepeated = ref.serviceName === '';
        return {
          target: { kind: 'endpoint', ref },
          deleted: isRepeated ? REPEATED : { kind: 'endpoint', ref, value: undefined },
          decode(bytes) {
            if (isRepeated) return REPEATED;
            const value = EndpointInfo.decode(bytes);
            const { namespace, serviceName, sourceName } = ref;
            const isSame =
              value.namespace === namespace &&
              value.serviceName === serviceName &&
              value.sourceName === sourceName;
            if (!isSame) throw new Error('the endpoint has other names');
            return { kind: 'endpoint', ref, value };
          },
        };
      },
    },
    [SetNumber.GlobalNodeInfos]: {
      noun: 'node',
      form: '|name||',
      shape: NODE_INFO,
      entry(path) {
        const ref = parseGlobalNodePath(path);
        if (ref === undefined) return undefined;
        return {
          target: { kind: 'node', ref },
          deleted: { kind: 'node', ref, value: undefined },
          decode(bytes) {
            const { node: value } = NodeInfo.decode(bytes);
            if (value?.name !== ref) throw new Error('the node has another name');
            return { kind: 'node', ref, value };
          },
        };
      },
    },
  },
};

/** Decodes an operation of the global API. */
export function decodeGlobalOp(bytes: Uint8Array): GlobalOp {
  return decodeOp(bytes, GLOBAL);
}
