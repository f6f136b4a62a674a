/** The desired state of the data path, as plain values that can be posted to a worker thread. */

import type { ErrorCode } from '../errors.ts';

export type Protocol = 'TCP' | 'UDP';

/**
 * Where traffic goes: `internal` to cluster IPs, `external` to external IPs, load-balancer IPs and node ports, from
 * clients outside the cluster. Traffic policies may allow an endpoint for one and not for the other. `cluster` goes to
 * the same addresses as `external` from clients in the cluster, which no policy restricts. It is used only if both
 * policies are Local; otherwise it has the endpoints of the traffic whose policy is Cluster.
 */
export type Traffic = 'internal' | 'external' | 'cluster';

/** Clients in the cluster that a policy for clients outside does not restrict. The host itself always is one. */
export interface ClusterClients {
  /** Networks (CIDR) of pods. */
  readonly networks: readonly string[];
  readonly traffic: Traffic;
}

export interface EndpointSpec {
  /** IP literal, without brackets. */
  readonly address: string;
  /** 1 to 65535. */
  readonly port: number;
  readonly internal: boolean;
  readonly external: boolean;
  /** Usable for cluster traffic. Absent: no. */
  readonly cluster?: boolean;
  /** Traffic for which an operator drains it. Clients that find no other endpoint are rejected with that reason. */
  readonly drained?: readonly Traffic[];
}

/** One address that an engine listens on for a service port. */
export interface ListenSpec {
  /**
   * IP literal, without brackets; `0.0.0.0` and `::` mean every address of that family and of that
   * one only, so a listener on `::` is opened IPv6-only and both can be open at once.
   */
  readonly address: string;
  /** 0 to 65535; 0: the kernel chooses one for each listener of that address, and its status says which. */
  readonly port: number;
  readonly traffic: Traffic;
  /** Client networks (CIDR) that are admitted. Absent or empty: all. */
  readonly sourceRanges?: readonly string[];
  /** Clients whose traffic is of another kind. Absent: none. */
  readonly clusterClients?: ClusterClients;
  /**
   * Packet rules deliver packets for other addresses here unchanged (IP_TRANSPARENT; only the `linux` engine). TCP: all
   * these listeners share the sockets of `address`, on a port that the kernel chooses; the address that a client asked
   * for selects the service port, and these are its addresses. Then all listeners of the service port are such.
   * An empty list: such a socket; for UDP, the host may lack `address`.
   */
  readonly transparent?: readonly PortalAddress[];
}

export interface PortalAddress {
  /** IP literal, without brackets, as the system writes it; undefined: every address of the host. */
  readonly address: string | undefined;
  /** 1 to 65535. */
  readonly port: number;
}

export type AffinitySpec =
  | { readonly kind: 'none' }
  /** By client address, for so many seconds since the client's last connection. */
  | { readonly kind: 'clientIP'; readonly timeoutSeconds: number };

/** 1 is a line of text, 2 is binary. */
export type ProxyProtocolVersion = 1 | 2;

export interface ServicePortSpec {
  /** `namespace/name:port`, or `namespace/name` for an unnamed port. Unique within an engine. */
  readonly name: string;
  readonly protocol: Protocol;
  readonly listen: readonly ListenSpec[];
  /** Further addresses from which packet rules redirect, to detect endpoints that are the service itself. */
  readonly portals?: readonly PortalAddress[];
  readonly endpoints: readonly EndpointSpec[];
  readonly affinity: AffinitySpec;
  /** Overrides the engine's idle limit of UDP sessions. Milliseconds. */
  readonly udpIdleTimeoutMs?: number;
  /**
   * Connect to endpoints from the client's address: for external traffic, or for all; never for `cluster` traffic. Only
   * for listeners that are transparent. Absent: from an address of the host.
   */
  readonly keepsClients?: 'external' | 'all';
  /** Name the client to endpoints, in a PROXY protocol header. TCP only. Absent: no header. */
  readonly proxyProtocol?: ProxyProtocolVersion;
  /** Networks (CIDR) whose TCP connections begin with a PROXY protocol header that says who the client is. */
  readonly proxyProtocolFrom?: readonly string[];
}

export type EngineChange =
  /** Creates the service port, or changes it to this. Listeners that stay are not touched. */
  | {
      readonly kind: 'set';
      readonly spec: ServicePortSpec;
      /** Where it counts, for an engine whose counters are in shared memory. */
      readonly slot?: number | undefined;
    }
  | {
      readonly kind: 'endpoints';
      readonly name: string;
      readonly endpoints: readonly EndpointSpec[];
    }
  | { readonly kind: 'remove'; readonly name: string };

export type ListenerStatus =
  | { readonly state: 'listening'; readonly listen: ListenSpec; readonly boundPort: number }
  | {
      readonly state: 'failed';
      readonly listen: ListenSpec;
      /** A code of the error table: KPNG_LISTEN_*. */
      readonly code: ErrorCode;
      /** The operating system's code, such as EADDRNOTAVAIL. */
      readonly cause: string;
    };
