/**
 * The JSON of kpng-json: byte for byte what Go's encoding/json makes of kpng's structs.
 *
 * It is not protobuf's JSON. Empty fields are left out (but not SessionAffinity and Endpoints), keys come in struct
 * order, enums are numbers. It is built as text because JSON.stringify offers neither sorted map keys nor Go's
 * escapes.
 */
import type { Endpoint, Service } from './generated/localv1/api.ts';
import { escapeAll } from '../util/terminal-text.ts';

/** One line of kpng-json, without the line feed: a service and its endpoints in the given order. */
export function itemJson(service: Service, endpoints: Iterable<Endpoint>): string {
  const list = Array.from(endpoints, (endpoint) => structJson(endpoint, ENDPOINT));
  const items = list.length === 0 ? 'null' : `[${list.join(',')}]`;
  return `{"Service":${structJson(service, SERVICE)},"Endpoints":${items}}`;
}

/** The fields of a struct in the order of Go, and what they hold: plain values unless said. */
type Struct = readonly Field[];
interface Field {
  readonly key: string;
  /** The name in our messages. */
  readonly name: string;
  readonly of: Struct | 'map' | undefined;
}

function struct(keys: string, nested: Readonly<Record<string, Field['of']>> = {}): Struct {
  return keys.split(' ').map((key) => {
    return { key, name: key.replace(/^(?:IP|.)/, (start) => start.toLowerCase()), of: nested[key] };
  });
}

const IP_SET = struct('V4 V6');
const AFFINITY: Struct = [{ key: 'ClientIP', name: 'value', of: struct('TimeoutSeconds') }];

const SERVICE = struct(
  'Namespace Name Type Labels Annotations IPs IPFilters MapIP Ports ExternalTrafficToLocal ' +
    'SessionAffinity InternalTrafficToLocal HealthCheckNodePort',
  {
    Labels: 'map',
    Annotations: 'map',
    IPs: struct('ClusterIPs ExternalIPs LoadBalancerIPs Headless', {
      ClusterIPs: IP_SET,
      ExternalIPs: IP_SET,
      LoadBalancerIPs: IP_SET,
    }),
    IPFilters: struct('TargetIPs SourceRanges', { TargetIPs: IP_SET }),
    Ports: struct('Name Protocol Port NodePort TargetPort TargetPortName'),
    SessionAffinity: AFFINITY,
  },
);

const ENDPOINT = struct('Hostname IPs Local PortOverrides Scopes', {
  IPs: IP_SET,
  PortOverrides: struct('Name Port'),
  Scopes: struct('Internal External'),
});

/** A service with the keys of state files: those of Go in lower case. */
export function plainService(service: Service): object {
  return plain(service, SERVICE) as object;
}

export function plainEndpoint(endpoint: Endpoint): object {
  return plain(endpoint, ENDPOINT) as object;
}

function plain(value: unknown, of: Field['of']): unknown {
  if (of === undefined || value === undefined) return value;
  if (of === 'map') return sortedMap(value as Readonly<Record<string, string>>);
  if (Array.isArray(value)) return value.map((each) => plain(each, of));
  const entries = of.map(({ key, name, of: inside }) => {
    return [key.toLowerCase(), plain((value as Readonly<Record<string, unknown>>)[name], inside)];
  });
  return Object.fromEntries(entries) as unknown;
}

/** In order of the keys, but those that are numbers come first. */
export function sortedMap(map: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(map).sort(([a], [b]) => (a < b ? -1 : 1)));
}

function structJson(message: object, fields: Struct): string {
  const parts: string[] = [];
  for (const { key, name, of } of fields) {
    const json = valueJson((message as Readonly<Record<string, unknown>>)[name], of);
    if (json !== '') parts.push(`"${key}":${json}`);
  }
  return `{${parts.join(',')}}`;
}

/** Nothing for the zero value; but an empty message is `{}`. */
function valueJson(value: unknown, of: Field['of']): string {
  if (of === AFFINITY && value === undefined) return 'null';
  if (of === 'map') return mapJson(value as Readonly<Record<string, string>>);
  if (Array.isArray(value)) {
    const each = (one: unknown): string =>
      of === undefined ? scalarJson(one) : valueJson(one, of);
    return value.length === 0 ? '' : `[${value.map(each).join(',')}]`;
  }
  if (value === undefined || value === '' || value === 0 || value === false) return '';
  return of === undefined ? scalarJson(value) : structJson(value as object, of);
}

function scalarJson(value: unknown): string {
  return typeof value === 'string' ? quoted(value) : String(value);
}

function mapJson(map: Readonly<Record<string, string>>): string {
  const keys = Object.keys(map).sort();
  if (keys.length === 0) return '';
  return `{${keys.map((key) => `${quoted(key)}:${quoted(map[key] ?? '')}`).join(',')}}`;
}

const SPECIAL = /[<>&\u2028\u2029]/g;

/** Go escapes characters that could end a script element or, in old JavaScript, a line. */
function quoted(value: string): string {
  return escapeAll(JSON.stringify(value), SPECIAL);
}
