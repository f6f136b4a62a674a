/**
 * The hashes of kpng: XXH64 with seed 0 over the deterministic encoding of a message.
 *
 * Deterministic means what Go's protobuf library does with that option: fields in ascending order,
 * map entries in order of their key, and in a map entry both key and value even when empty. So the
 * hashes equal those of kpng itself, and the keys of endpoints without a pod stay the same when a
 * node changes from one server to the other.
 */
import { BinaryWriter } from '@bufbuild/protobuf/wire';
import {
  EndpointInfo,
  Node,
  ServiceInfo,
  type EndpointConditions,
  type TopologyInfo,
} from './generated/globalv1/api.ts';
import { Endpoint, Service } from './generated/localv1/api.ts';

export interface Hasher {
  /** XXH64, seed 0. */
  bytes(bytes: Uint8Array): bigint;
  /** Value of `ServiceInfo.hash`. */
  service(service: Service): bigint;
  /** Value of `NodeInfo.hash`. */
  node(node: Node): bigint;
  /** Value of `EndpointInfo.hash`; its hex form ends the endpoint's global path. */
  endpointInfo(info: HashedEndpointInfo): bigint;
  /** Key of a local endpoint that has no pod name: depends on `local` and `scopes` too. */
  endpointKey(endpoint: Endpoint): string;
}

/** The parts of an EndpointInfo that its hash covers; hints and names are not among them. */
export interface HashedEndpointInfo {
  readonly endpoint: Endpoint | undefined;
  readonly conditions: EndpointConditions | undefined;
  readonly topology: TopologyInfo | undefined;
}

/** Lower-case hex without zero padding, as hashes appear in paths. */
export function hashText(hash: bigint): string {
  return hash.toString(16);
}

let loading: Promise<Hasher> | undefined;

/** Loads the hash function (a small WebAssembly module) once. Programs that never hash never do. */
export function loadHasher(): Promise<Hasher> {
  loading ??= load();
  return loading;
}

async function load(): Promise<Hasher> {
  const { default: xxhash } = await import('xxhash-wasm');
  const api = await xxhash();
  const h64 = (bytes: Uint8Array): bigint => api.h64Raw(bytes);
  return {
    bytes: h64,
    service: (service) => h64(encodeServiceInfo(service)),
    node: (node) => h64(encodeNode(node)),
    endpointInfo: ({ endpoint, conditions, topology }) =>
      h64(EndpointInfo.encode({ ...NO_INFO, endpoint, conditions, topology }).finish()),
    endpointKey: (endpoint) => hashText(h64(Endpoint.encode(endpoint).finish())),
  };
}

const NO_INFO = EndpointInfo.fromPartial({});
const NO_SERVICE = Service.fromPartial({});
const NO_NODE = Node.fromPartial({});

/** Tags of the map fields: field number and wire type 2. */
const SERVICE_LABELS = (8 << 3) | 2;
const SERVICE_ANNOTATIONS = (9 << 3) | 2;
const NODE_LABELS = (2 << 3) | 2;
const NODE_ANNOTATIONS = (3 << 3) | 2;
/** Of a ServiceInfo. */
const SERVICE_FIELD = (2 << 3) | 2;
/** Of a map entry. */
const KEY_FIELD = (1 << 3) | 2;
const VALUE_FIELD = (2 << 3) | 2;

/** A ServiceInfo that holds only the service. */
function encodeServiceInfo(service: Service): Uint8Array {
  const writer = ServiceInfo.encode({ hash: 0n, service: undefined });
  return encodeServiceInto(service, writer.uint32(SERVICE_FIELD).fork()).join().finish();
}

// Writing a message in two calls concatenates the two encodings, which protobuf reads as one
// message. That puts the maps, which the generated code writes in insertion order, into place.
function encodeServiceInto(service: Service, writer: BinaryWriter): BinaryWriter {
  const { ipFilters, sessionAffinity, internalTrafficToLocal, healthCheckNodePort } = service;
  Service.encode(
    {
      ...service,
      labels: {},
      annotations: {},
      ipFilters: [],
      sessionAffinity: undefined,
      internalTrafficToLocal: false,
      healthCheckNodePort: 0,
    },
    writer,
  );
  encodeMap(service.labels, SERVICE_LABELS, writer);
  encodeMap(service.annotations, SERVICE_ANNOTATIONS, writer);
  const rest = { ipFilters, sessionAffinity, internalTrafficToLocal, healthCheckNodePort };
  return Service.encode({ ...NO_SERVICE, ...rest }, writer);
}

function encodeNode(node: Node): Uint8Array {
  const writer = new BinaryWriter();
  Node.encode({ ...NO_NODE, name: node.name }, writer);
  encodeMap(node.labels, NODE_LABELS, writer);
  encodeMap(node.annotations, NODE_ANNOTATIONS, writer);
  return Node.encode({ ...NO_NODE, topology: node.topology }, writer).finish();
}

function encodeMap(map: Readonly<Record<string, string>>, tag: number, writer: BinaryWriter): void {
  for (const key of Object.keys(map).sort()) {
    const entry = writer.uint32(tag).fork();
    entry
      .uint32(KEY_FIELD)
      .string(key)
      .uint32(VALUE_FIELD)
      .string(map[key] ?? '');
    entry.join();
  }
}
