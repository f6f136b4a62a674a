/**
 * The hashes of kpng: XXH64 with seed 0 over the deterministic encoding of a message.
 *
 * Deterministic means what Go's protobuf library does with that option: fields in ascending order,
 * map entries in order of their key, and in a map entry both key and value even when empty. So the
 * hashes equal those of kpng itself, and the keys of endpoints without a pod stay the same when a
 * node changes from one server to the other.
 */
import { BinaryWriter } from '@bufbuild/protobuf/wire';
import { EndpointInfo, Node } from './generated/globalv1/api.ts';
import { Endpoint, Service } from './generated/localv1/api.ts';

export type Hasher = Awaited<ReturnType<typeof load>>;

type Hashed = Pick<EndpointInfo, 'endpoint' | 'conditions' | 'topology'>;

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

async function load() {
  const { default: xxhash } = await import('xxhash-wasm');
  const api = await xxhash();
  const h64 = (bytes: Uint8Array): bigint => api.h64Raw(bytes);
  return {
    /** Value of `ServiceInfo.hash`. */
    service: (service: Service) => h64(encodeServiceInfo(service)),
    /** Value of `NodeInfo.hash`. */
    node: (node: Node) => h64(encodeNode(node)),
    /** Value of `EndpointInfo.hash`, which covers neither hints nor names; its hex form ends the endpoint's global path. */
    endpointInfo: ({ endpoint, conditions, topology }: Hashed) =>
      h64(EndpointInfo.encode({ ...NO_INFO, endpoint, conditions, topology }).finish()),
    /** Key of a local endpoint that has no pod name: depends on `local` and `scopes` too. */
    endpointKey: (endpoint: Endpoint) => hashText(h64(Endpoint.encode(endpoint).finish())),
  };
}

const NO_INFO = EndpointInfo.fromPartial({});
const NO_SERVICE = Service.fromPartial({});
const NO_NODE = Node.fromPartial({});

/** Tag of a field with the wire type of texts, messages and maps. */
function tagOf(field: number): number {
  return (field << 3) | 2;
}

/** A ServiceInfo that holds only the service. */
function encodeServiceInfo(service: Service): Uint8Array {
  const { ipFilters, sessionAffinity, internalTrafficToLocal, healthCheckNodePort } = service;
  const last = { ipFilters, sessionAffinity, internalTrafficToLocal, healthCheckNodePort };
  const { namespace, name, type, ips, mapIP, ports, externalTrafficToLocal } = service;
  const first = { namespace, name, type, ips, mapIP, ports, externalTrafficToLocal };
  const writer = new BinaryWriter().uint32(tagOf(2)).fork();
  // Writing a message in two calls concatenates the two encodings, which protobuf reads as one
  // message. That puts the maps, which the generated code writes in insertion order, into place.
  Service.encode({ ...NO_SERVICE, ...first }, writer);
  encodeMap(service.labels, 8, writer);
  encodeMap(service.annotations, 9, writer);
  return Service.encode({ ...NO_SERVICE, ...last }, writer)
    .join()
    .finish();
}

function encodeNode(node: Node): Uint8Array {
  const writer = new BinaryWriter();
  Node.encode({ ...NO_NODE, name: node.name }, writer);
  encodeMap(node.labels, 2, writer);
  encodeMap(node.annotations, 3, writer);
  return Node.encode({ ...NO_NODE, topology: node.topology }, writer).finish();
}

function encodeMap(
  map: Readonly<Record<string, string>>,
  field: number,
  writer: BinaryWriter,
): void {
  for (const key of Object.keys(map).sort()) {
    const entry = writer.uint32(tagOf(field)).fork();
    entry.uint32(tagOf(1)).string(key);
    entry.uint32(tagOf(2)).string(map[key] ?? '');
    entry.join();
  }
}
