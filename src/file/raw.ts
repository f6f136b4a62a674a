import type { EndpointInfo, Node, TopologyInfo } from '../api/generated/globalv1/api.ts';
import type {
  ClientIPAffinity,
  Endpoint,
  IPSet,
  PortMapping,
  PortName,
  Protocol,
  Service,
} from '../api/generated/localv1/api.ts';

/**
 * A message as spelled in a state file that passed the JSON schema: with keys in lower case, which may be missing or null
 * unless the schema requires them.
 */
type Raw<T, Special = unknown> = Special & Omit<Lower<T>, keyof Special>;
type Lower<T> = T extends readonly (infer Item)[]
  ? readonly Lower<Item>[]
  : T extends object
    ? string extends keyof T
      ? Readonly<T>
      : { readonly [K in keyof T & string as Lowercase<K>]?: Lower<T[K]> | null }
    : T;

export type RawIPSet = Raw<IPSet>;
export type RawTopology = Raw<TopologyInfo>;
export type RawNode = Raw<Node, { readonly name: string }>;

export type RawPort = Raw<
  PortMapping,
  { readonly port: number; readonly protocol?: 'TCP' | 'UDP' | 'SCTP' | 1 | 2 | 3 | null }
>;

export type RawService = Raw<
  Service,
  {
    readonly name: string;
    readonly ports?: readonly RawPort[] | null;
    readonly sessionaffinity?: { readonly clientip?: Raw<ClientIPAffinity> | null } | null;
  }
>;

export type RawEndpoint = Raw<EndpointInfo, { readonly endpoint?: RawAddresses | null }>;
type RawAddresses = Raw<Endpoint, { readonly portoverrides?: readonly RawOverride[] | null }>;
type RawOverride = Raw<PortName, { readonly port: number }>;

export interface RawServiceItem {
  readonly service: RawService;
  readonly endpoints?: readonly RawEndpoint[] | null;
}

/** The whole file without the service items, which are checked one by one. */
export interface RawFile {
  readonly nodes?: readonly RawNode[] | null;
}

const PROTOCOLS = { TCP: 1, UDP: 2, SCTP: 3 } as const satisfies Record<string, Protocol>;

/** The service's namespace, with the default of state files. */
export function namespaceOf({ namespace }: RawService): string {
  return namespace === undefined || namespace === null || namespace === '' ? 'default' : namespace;
}

/** The number of a protocol; TCP unless given. */
export function protocolOf(protocol: RawPort['protocol']): Protocol {
  return typeof protocol === 'string' ? PROTOCOLS[protocol] : (protocol ?? PROTOCOLS.TCP);
}
