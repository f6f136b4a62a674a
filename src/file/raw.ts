import type { Protocol } from '../api/generated/localv1/api.ts';

/**
 * A service item and a node as spelled in a state file that passed the JSON schema. Every key may be missing or null
 * unless the schema requires it.
 */
type Raw<T> = { readonly [K in keyof T]?: T[K] | null };
type Texts = readonly string[];
type TextMap = Readonly<Record<string, string>>;

export type RawIPSet = Raw<{ v4: Texts; v6: Texts }>;

export type RawPort = { readonly port: number } & Raw<{
  name: string;
  protocol: 'TCP' | 'UDP' | 'SCTP' | 1 | 2 | 3;
  nodeport: number;
  targetport: number;
  targetportname: string;
}>;

export type RawService = { readonly name: string } & Raw<{
  namespace: string;
  type: string;
  labels: TextMap;
  annotations: TextMap;
  ips: Raw<{
    clusterips: RawIPSet;
    externalips: RawIPSet;
    loadbalancerips: RawIPSet;
    headless: boolean;
  }>;
  ipfilters: readonly Raw<{ targetips: RawIPSet; sourceranges: Texts }>[];
  mapip: boolean;
  ports: readonly RawPort[];
  externaltraffictolocal: boolean;
  internaltraffictolocal: boolean;
  sessionaffinity: Raw<{ clientip: Raw<{ timeoutseconds: number }> }>;
  healthchecknodeport: number;
}>;

export type RawTopology = Raw<{ node: string; zone: string }>;

export type RawEndpoint = Raw<{
  podname: string;
  endpoint: Raw<{
    hostname: string;
    ips: RawIPSet;
    portoverrides: readonly ({ readonly port: number } & Raw<{ name: string }>)[];
  }>;
  conditions: Raw<{ ready: boolean; serving: boolean; terminating: boolean }>;
  topology: RawTopology;
  hints: Raw<{ zones: Texts; nodes: Texts }>;
  namespace: string;
  servicename: string;
}>;

export type RawServiceItem = { readonly service: RawService } & Raw<{
  endpoints: readonly RawEndpoint[];
}>;

export type RawNode = { readonly name: string } & Raw<{
  labels: TextMap;
  annotations: TextMap;
  topology: RawTopology;
}>;

/** The whole file without the service items, which are checked one by one. */
export type RawFile = Raw<{ nodes: readonly RawNode[] }>;

const PROTOCOLS = { TCP: 1, UDP: 2, SCTP: 3 } as const satisfies Record<string, Protocol>;

/** The service's namespace, with the default of state files. */
export function namespaceOf({ namespace }: RawService): string {
  return namespace === undefined || namespace === null || namespace === '' ? 'default' : namespace;
}

/** The number of a protocol; TCP unless given. */
export function protocolOf(protocol: RawPort['protocol']): Protocol {
  return typeof protocol === 'string' ? PROTOCOLS[protocol] : (protocol ?? PROTOCOLS.TCP);
}
