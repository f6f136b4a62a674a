/** The cluster of the benchmark: services with ten endpoints each, spread over nodes in three zones. */
import { EndpointInfo, Node } from '../../src/api/generated/globalv1/api.ts';
import { Service } from '../../src/api/generated/localv1/api.ts';
import type { EndpointSource, GlobalTransaction } from '../../src/store/global-store.ts';

export interface ClusterSize {
  readonly services: number;
  readonly nodes: number;
}

const ENDPOINTS_PER_SERVICE = 10;
const NAMESPACES = 50;
const ZONES = 3;

export function nodeName(index: number): string {
  return `node-${index}`;
}

/** Fills a store. */
export function fill(transaction: GlobalTransaction, size: ClusterSize): void {
  const nodes = Array.from({ length: size.nodes }, (_, index) => nodeOf(index));
  for (const node of nodes) transaction.setNode(node.name, node);
  for (let index = 0; index < size.services; index++) {
    const service = serviceOf(index);
    transaction.setService(`${service.namespace}/${service.name}`, service);
    transaction.setSource(sliceOf(index, nodes));
  }
  transaction.setComplete();
}

/** The endpoints of a service; one of them has an address of its own for each `generation`. */
export function sliceOf(index: number, nodes: readonly Node[], generation = 0): EndpointSource {
  const namespace = namespaceOf(index);
  const serviceName = `service-${index}`;
  const sourceName = `${serviceName}-x7k2p`;
  const names = { namespace, serviceName, sourceName };
  const endpoints = Array.from({ length: ENDPOINTS_PER_SERVICE }, (_, n) => {
    const topology = nodes[(index * 7 + n * 13) % nodes.length]?.topology;
    const v4 = [addressOf(index, n, n === 0 ? generation : 0)];
    const endpoint = { ips: { v4 }, portOverrides: [{ name: 'http', port: 8080 }] };
    const info = EndpointInfo.fromPartial({ endpoint, conditions: { ready: true } });
    return Object.assign(info, names, { podName: `${serviceName}-6d4f8b7c9-${n}`, topology });
  });
  return { namespace, name: sourceName, serviceName, endpoints };
}

function addressOf(index: number, n: number, generation: number): string {
  return generation === 0
    ? `10.${(index >> 8) & 255}.${index & 255}.${n}`
    : `172.${(generation >> 16) & 255}.${(generation >> 8) & 255}.${generation & 255}`;
}

export function nodeOf(index: number): Node {
  const zone = `zone-${index % ZONES}`;
  const name = nodeName(index);
  const labels = { 'kubernetes.io/hostname': name, 'topology.kubernetes.io/zone': zone };
  return Node.fromPartial({ name, labels, topology: { node: name, zone } });
}

function serviceOf(index: number): Service {
  return Service.fromPartial({
    namespace: namespaceOf(index),
    name: `service-${index}`,
    type: 'ClusterIP',
    ips: { clusterIPs: { v4: [`10.96.${(index >> 8) & 255}.${index & 255}`] }, externalIPs: {} },
    ports: [{ name: 'http', protocol: 1, port: 80, targetPort: 8080 }],
  });
}

function namespaceOf(index: number): string {
  return `namespace-${index % NAMESPACES}`;
}
