import { EndpointInfo, NodeInfo, ServiceInfo, type Node } from './generated/globalv1/api.ts';
import { Set as SetNumber, type Service } from './generated/localv1/api.ts';
import {
  decodeOp,
  type ChangeOp,
  type EntryOp,
  type EntrySet,
  type OpSets,
  type StreamOp,
} from './ops.ts';
import {
  parseGlobalEndpointPath,
  parseGlobalNodePath,
  parseGlobalServicePath,
  type GlobalEndpointRef,
  type ServiceRef,
} from './paths.ts';
import { ENDPOINT_INFO, NODE_INFO, SERVICE_INFO } from './wire.ts';

type ServiceOp = EntryOp<'service', ServiceRef, Service>;
/** Without a service's name it is kpng's second entry for an endpoint, a duplicate. */
type EndpointOp = EntryOp<'endpoint', GlobalEndpointRef, EndpointInfo>;
/** `ref`: the name. */
type NodeOp = EntryOp<'node', string, Node>;

export type GlobalDataOp = ServiceOp | EndpointOp | NodeOp;

export type GlobalOp = ChangeOp<GlobalDataOp> | StreamOp;

// A value must have the names of its path, which Delete refers to.

const SERVICES: EntrySet<ServiceOp> = {
  kind: 'service',
  form: 'namespace|name||',
  shape: SERVICE_INFO,
  parse: parseGlobalServicePath,
  decode(bytes, { namespace, name }) {
    const { service } = ServiceInfo.decode(bytes);
    if (service?.namespace === namespace && service.name === name) return service;
    throw new Error('the service has other names');
  },
};

const ENDPOINTS: EntrySet<EndpointOp> = {
  kind: 'endpoint',
  form: 'namespace|service|source|hash',
  shape: ENDPOINT_INFO,
  parse: parseGlobalEndpointPath,
  decode(bytes, { namespace, serviceName, sourceName }) {
    const info = EndpointInfo.decode(bytes);
    const isSame =
      info.namespace === namespace &&
      info.serviceName === serviceName &&
      info.sourceName === sourceName;
    if (isSame || serviceName === '') return info;
    throw new Error('the endpoint has other names');
  },
};

const NODES: EntrySet<NodeOp> = {
  kind: 'node',
  form: '|name||',
  shape: NODE_INFO,
  parse: parseGlobalNodePath,
  decode(bytes, name) {
    const { node } = NodeInfo.decode(bytes);
    if (node?.name === name) return node;
    throw new Error('the node has another name');
  },
};

const GLOBAL: OpSets<GlobalDataOp> = {
  api: 'global API',
  sets: {
    [SetNumber.GlobalServiceInfos]: SERVICES,
    [SetNumber.GlobalEndpointInfos]: ENDPOINTS,
    [SetNumber.GlobalNodeInfos]: NODES,
  },
};

export function decodeGlobalOp(bytes: Uint8Array): GlobalOp {
  return decodeOp(bytes, GLOBAL);
}
