import type { ErrorCode } from '../errors.ts';
import type { ClusterClients, ListenSpec, Protocol, Traffic } from '../proxysocket/spec.ts';
import type { HostAddress } from '../util/host-addresses.ts';
import { formatHostPort } from '../util/host-port.ts';

export type PortalKind = 'clusterIP' | 'externalIP' | 'loadBalancerIP' | 'nodePort';

/** An address that clients use, with its port and protocol. */
export interface PortalSpec {
  readonly kind: PortalKind;
  readonly protocol: Protocol;
  /** IP literal; for a node port undefined, which means the node's own addresses. */
  readonly address: string | undefined;
  readonly port: number;
  readonly traffic: Traffic;
  /** Allowed client networks (CIDR); empty: all. */
  readonly sourceRanges: readonly string[];
  /** Clients whose traffic is of another kind. Absent: none. */
  readonly clusterClients?: ClusterClients;
}

/** Whether each kind of traffic has endpoints. `cluster` absent: it has none. */
export interface Served extends Partial<Readonly<Record<Traffic, boolean>>> {
  readonly internal: boolean;
  readonly external: boolean;
}

/** The addresses and ports of one service port. */
export interface ServicePortPortals {
  /** `namespace/name:port`. */
  readonly servicePort: string;
  readonly portals: readonly PortalSpec[];
  /**
   * Whether each kind of traffic has endpoints. Portals with rules reject traffic without endpoints, or drop it if
   * another kind has some: then other nodes have endpoints for it.
   */
  readonly served: Served;
  /** Whether the kinds of traffic may have different endpoints, and so need a proxy port each. */
  readonly splitTraffic: boolean;
}

/** Portals that are unavailable for the same reason. One of them is described: there may be very many. */
export interface PortalProblem {
  readonly servicePort: string;
  readonly code: ErrorCode;
  readonly message: string;
  /** How many there are. Default 1. */
  readonly count?: number;
}

/** New listeners of service ports whose listeners differ, including those that gain an address from another one. */
export type PortalPlan = ReadonlyMap<string, readonly ListenSpec[]>;

/** Listeners of a service port; without a port, they are not open. */
export type BoundPorts = readonly [
  servicePort: string,
  bound: readonly { readonly listen: ListenSpec; readonly boundPort?: number }[],
];

/**
 * How traffic gets to the proxy sockets.
 *
 * A sync calls `plan` and `prepare`, lets the engine listen, and calls `commit`, each once. An `address` portal adds
 * addresses in `prepare` and removes them in `commit`; a redirecting one plans proxy ports and writes its rules in
 * `commit`, in one transaction, after routes that `prepare` begins to write.
 */
export interface Portal {
  readonly kind: 'address' | 'none' | 'nftables' | 'transparent' | 'iptables' | 'portproxy';

  /**
   * Whether rules redirect traffic to proxy ports; absent: no. Only such a portal gets `served` and `splitTraffic`,
   * and is updated when a service gets its first or loses its last endpoint. Its rules change before listeners
   * close.
   */
  readonly redirects?: boolean;

  /** Plans the listen addresses, without side effects outside this object. Removals count first. */
  plan(set: readonly ServicePortPortals[], remove: readonly string[]): PortalPlan;

  /** A service port, as last planned. */
  wanted(servicePort: string): ServicePortPortals | undefined;

  /** Where a service port listens, as last planned. */
  listen(servicePort: string): readonly ListenSpec[];

  /** Whether it chooses the ports of listeners from a range. */
  readonly choosesPorts: boolean;

  /** Another program holds the port of a listener. Returns whether the next plan chooses another. */
  portTaken(servicePort: string, listen: ListenSpec): boolean;

  /** Whether a listener of a service port was not open at the last commit. */
  isPartlyOpen(servicePort: string): boolean;

  /** The missing portals now. Called twice at each sync, so its cost must not depend on their number. */
  problems(): readonly PortalProblem[];

  /** Provides what listeners need before they open; absent: nothing. Never rejects: `commit` reports failures. */
  prepare?(): Promise<void>;

  /** The host's own addresses, if the portal adds others; absent: it adds none. Node ports open on these only. */
  hostAddresses?(): readonly HostAddress[];

  /** Applies the plan outside the engine. `bound`: for service ports that the plan changed. */
  commit(bound: Iterable<BoundPorts>): Promise<void>;

  /**
   * Releases the portal's resources. `removes`: also the rules and addresses; default: they stay for another process.
   * Idempotent.
   */
  close(removes?: boolean): Promise<void>;
}

/** `10.0.0.1:80/TCP`, or `node port 30080/TCP`. */
export function portalText({
  address,
  port,
  protocol,
}: Pick<PortalSpec, 'address' | 'port' | 'protocol'>): string {
  if (address === undefined) return `node port ${port}/${protocol}`;
  return `${formatHostPort({ host: address, port })}/${protocol}`;
}
