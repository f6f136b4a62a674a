/**
 * The JSON of kpng-json: byte for byte what Go's encoding/json makes of kpng's structs.
 *
 * It is not protobuf's JSON. Empty fields are left out (but not SessionAffinity and Endpoints), keys come in struct
 * order, enums are numbers. It is built as text because JSON.stringify offers neither sorted map keys nor Go's
 * escapes.
 */
import type {
  Endpoint,
  IPFilter,
  IPSet,
  PortMapping,
  PortName,
  Service,
  ServiceIPs,
} from './generated/localv1/api.ts';

/** One line of kpng-json, without the line feed: a service and its endpoints in the given order. */
export function itemJson(service: Service, endpoints: Iterable<Endpoint>): string {
  const list = Array.from(endpoints, endpointJson);
  const items = list.length === 0 ? 'null' : `[${list.join(',')}]`;
  return `{"Service":${serviceJson(service)},"Endpoints":${items}}`;
}

function serviceJson(service: Service): string {
  const affinity = service.sessionAffinity;
  return object(
    text('Namespace', service.namespace),
    text('Name', service.name),
    text('Type', service.type),
    map('Labels', service.labels),
    map('Annotations', service.annotations),
    message('IPs', service.ips, serviceIpsJson),
    list('IPFilters', service.ipFilters, ipFilterJson),
    flag('MapIP', service.mapIP),
    list('Ports', service.ports, portJson),
    flag('ExternalTrafficToLocal', service.externalTrafficToLocal),
    affinity
      ? `"SessionAffinity":{"ClientIP":${object(number('TimeoutSeconds', affinity.value.timeoutSeconds))}}`
      : '"SessionAffinity":null',
    flag('InternalTrafficToLocal', service.internalTrafficToLocal),
    number('HealthCheckNodePort', service.healthCheckNodePort),
  );
}

function serviceIpsJson(ips: ServiceIPs): string {
  return object(
    message('ClusterIPs', ips.clusterIPs, ipSetJson),
    message('ExternalIPs', ips.externalIPs, ipSetJson),
    message('LoadBalancerIPs', ips.loadBalancerIPs, ipSetJson),
    flag('Headless', ips.headless),
  );
}

function ipSetJson({ v4, v6 }: IPSet): string {
  return object(list('V4', v4, quoted), list('V6', v6, quoted));
}

function ipFilterJson(filter: IPFilter): string {
  return object(
    message('TargetIPs', filter.targetIPs, ipSetJson),
    list('SourceRanges', filter.sourceRanges, quoted),
  );
}

function portJson(port: PortMapping): string {
  return object(
    text('Name', port.name),
    number('Protocol', port.protocol),
    number('Port', port.port),
    number('NodePort', port.nodePort),
    number('TargetPort', port.targetPort),
    text('TargetPortName', port.targetPortName),
  );
}

function endpointJson(endpoint: Endpoint): string {
  return object(
    text('Hostname', endpoint.hostname),
    message('IPs', endpoint.ips, ipSetJson),
    flag('Local', endpoint.local),
    list('PortOverrides', endpoint.portOverrides, portNameJson),
    message('Scopes', endpoint.scopes, ({ internal, external }) =>
      object(flag('Internal', internal), flag('External', external)),
    ),
  );
}

function portNameJson({ name, port }: PortName): string {
  return object(text('Name', name), number('Port', port));
}

/** An object of the fields that are not empty. */
function object(...fields: string[]): string {
  return `{${fields.filter((field) => field !== '').join(',')}}`;
}

// Fields: `"Key":value`, or nothing for the zero value.

function text(key: string, value: string): string {
  return value === '' ? '' : `"${key}":${quoted(value)}`;
}

function number(key: string, value: number): string {
  return value === 0 ? '' : `"${key}":${value}`;
}

function flag(key: string, value: boolean): string {
  return value ? `"${key}":true` : '';
}

function list<T>(key: string, values: readonly T[], json: (value: T) => string): string {
  return values.length === 0 ? '' : `"${key}":[${values.map((value) => json(value)).join(',')}]`;
}

/** An empty message is `{}`. */
function message<T>(key: string, value: T | undefined, json: (value: T) => string): string {
  return value === undefined ? '' : `"${key}":${json(value)}`;
}

function map(key: string, value: Readonly<Record<string, string>>): string {
  const keys = Object.keys(value).sort();
  if (keys.length === 0) return '';
  const fields = keys.map((name) => `${quoted(name)}:${quoted(value[name] ?? '')}`);
  return `"${key}":{${fields.join(',')}}`;
}

/** Go escapes characters that could end a script element or, in old JavaScript, a line. */
function quoted(value: string): string {
  return JSON.stringify(value).replace(SPECIAL, escape);
}

const SPECIAL = /[<>&\u2028\u2029]/g;

function escape(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}
