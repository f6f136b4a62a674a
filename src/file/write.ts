/**
 * The form in which kpng writes its state: every key, what is absent as null, protocols as numbers.
 * kpng reads it as well as this program does; keys that kpng does not know are there only when they
 * say something.
 */
import type { EndpointInfo, Node, TopologyInfo } from '../api/generated/globalv1/api.ts';
import type { Endpoint, IPSet, Service } from '../api/generated/localv1/api.ts';
import { text, textMap, texts } from './scalar.ts';

export interface WrittenEndpoint {
  readonly info: EndpointInfo;
  readonly hash: bigint;
}

/** An item of `nodes`. */
export function nodeText({ name, labels, annotations, topology }: Node): string {
  return lines(
    `- name: ${text(name)}`,
    `  labels: ${textMap(labels)}`,
    `  annotations: ${textMap(annotations)}`,
    `  topology: ${topologyText(topology)}`,
  );
}

/** An item of `services`. */
export function serviceText(service: Service, endpoints: readonly WrittenEndpoint[]): string {
  return lines(
    '- service:',
    `    namespace: ${text(service.namespace)}`,
    `    name: ${text(service.name)}`,
    `    type: ${text(service.type)}`,
    `    labels: ${textMap(service.labels)}`,
    `    annotations: ${textMap(service.annotations)}`,
    ...ipsLines(service.ips),
    `    ipfilters: ${filtersText(service.ipFilters)}`,
    `    mapip: ${service.mapIP}`,
    service.ports.length === 0 ? '    ports: []' : '    ports:',
    ...service.ports.map(
      (port) =>
        `    - {name: ${text(port.name)}, protocol: ${port.protocol}, port: ${port.port}, ` +
        `nodeport: ${port.nodePort}, targetport: ${port.targetPort}, ` +
        `targetportname: ${text(port.targetPortName)}}`,
    ),
    `    externaltraffictolocal: ${service.externalTrafficToLocal}`,
    `    sessionaffinity: ${affinityText(service.sessionAffinity)}`,
    `    internaltraffictolocal: ${service.internalTrafficToLocal}`,
    `    healthchecknodeport: ${service.healthCheckNodePort}`,
    endpoints.length === 0 ? '  endpoints: []' : '  endpoints:',
    ...endpoints.map(endpointText),
  );
}

function ipsLines(ips: Service['ips']): string[] {
  if (ips === undefined) return ['    ips: null'];
  return [
    '    ips:',
    `      clusterips: ${ipSetText(ips.clusterIPs)}`,
    `      externalips: ${ipSetText(ips.externalIPs)}`,
    `      loadbalancerips: ${ipSetText(ips.loadBalancerIPs)}`,
    `      headless: ${ips.headless}`,
  ];
}

function filtersText(filters: Service['ipFilters']): string {
  const items = filters.map(
    ({ targetIPs, sourceRanges }) =>
      `{targetips: ${ipSetText(targetIPs)}, sourceranges: ${texts(sourceRanges)}}`,
  );
  return `[${items.join(', ')}]`;
}

function affinityText(affinity: Service['sessionAffinity']): string {
  return affinity === undefined
    ? 'null'
    : `{clientip: {timeoutseconds: ${affinity.value.timeoutSeconds}}}`;
}

function endpointText({ info, hash }: WrittenEndpoint): string {
  return [
    `  - hash: ${hash}`,
    `    namespace: ${text(info.namespace)}`,
    `    sourcename: ${text(info.sourceName)}`,
    `    servicename: ${text(info.serviceName)}`,
    `    endpoint: ${addressText(info.endpoint)}`,
    `    conditions: ${conditionsText(info.conditions)}`,
    `    podname: ${text(info.podName)}`,
    `    topology: ${topologyText(info.topology)}`,
    `    hints: ${hintsText(info.hints)}`,
  ].join('\n');
}

function addressText(endpoint: Endpoint | undefined): string {
  if (endpoint === undefined) return 'null';
  const { hostname, ips, portOverrides } = endpoint;
  const ports = portOverrides.map(({ name, port }) => `{name: ${text(name)}, port: ${port}}`);
  return (
    `{hostname: ${text(hostname)}, ips: ${ipSetText(ips)}, local: false, ` +
    `portoverrides: [${ports.join(', ')}], scopes: null}`
  );
}

function conditionsText(conditions: EndpointInfo['conditions']): string {
  if (conditions === undefined) return 'null';
  const { ready, serving, terminating } = conditions;
  const rest = `${serving ? ', serving: true' : ''}${terminating ? ', terminating: true' : ''}`;
  return `{ready: ${ready}${rest}}`;
}

function hintsText(hints: EndpointInfo['hints']): string {
  if (hints === undefined) return 'null';
  const nodes = hints.nodes.length === 0 ? '' : `, nodes: ${texts(hints.nodes)}`;
  return `{zones: ${texts(hints.zones)}${nodes}}`;
}

function topologyText(topology: TopologyInfo | undefined): string {
  if (topology === undefined) return 'null';
  return `{node: ${text(topology.node)}, zone: ${text(topology.zone)}}`;
}

function ipSetText(set: IPSet | undefined): string {
  return set === undefined ? 'null' : `{v4: ${texts(set.v4)}, v6: ${texts(set.v6)}}`;
}

function lines(...all: readonly string[]): string {
  return `${all.join('\n')}\n`;
}
