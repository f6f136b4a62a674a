import type { ListenSpec, Protocol, Traffic } from '../proxysocket/spec.ts';
import type { HostAddress } from '../util/host-addresses.ts';
import { formatHostPort } from '../util/host-port.ts';
import { sameList } from '../util/same-list.ts';

/** What kind of service address a portal is. */
export type PortalKind = 'clusterIP' | 'externalIP' | 'loadBalancerIP' | 'nodePort';

/** An address that clients use, with its port and protocol. */
export interface PortalSpec {
  readonly kind: PortalKind;
  readonly protocol: Protocol;
  /** IP literal; for a node port undefined, which means the node's own addresses. */
  readonly address: string | undefined;
  readonly port: number;
  readonly traffic: Traffic;
  /** Client networks (CIDR) that are let in; empty: all. */
  readonly sourceRanges: readonly string[];
}

/** The portals that one service port wants. */
export interface ServicePortPortals {
  /** `namespace/name:port`. */
  readonly servicePort: string;
  readonly portals: readonly PortalSpec[];
  /**
   * Whether there is an endpoint for each kind of traffic; absent: there is. A portal that writes
   * rules refuses traffic for which there is none. Others leave that to the engine.
   */
  readonly served?: Readonly<Record<Traffic, boolean>>;
  /**
   * Whether internal and external traffic may have different endpoints, so that a redirecting portal
   * needs a proxy port for each; absent: they may.
   */
  readonly splitTraffic?: boolean;
}

/** Portals that cannot be had now for the same reason. One of them is described: there may be very many. */
export interface PortalProblem {
  readonly servicePort: string;
  /** Undefined when it is about the service port as a whole. */
  readonly portal: PortalSpec | undefined;
  /** A code of the error table, such as KPNG_PORTAL_CONFLICT. */
  readonly code: string;
  readonly message: string;
  /** How many there are. Default 1. */
  readonly count?: number;
}

/** What an engine has to listen on because of a portal plan. */
export interface PortalPlan {
  /**
   * Service ports whose listeners differ from before, with the whole new list: those asked for, and
   * those that gain an address because another one gave it up.
   */
  readonly listen: ReadonlyMap<string, readonly ListenSpec[]>;
  /** The portals that are missing now, over all service ports, not only this plan's. */
  readonly problems: readonly PortalProblem[];
}

/**
 * How traffic gets to the proxy sockets.
 *
 * One sync calls `plan` once, then `prepare`, lets the engine listen, and then calls `commit` once. An
 * `address` portal adds addresses in `prepare` and removes them in `commit`, if it is to have any of its
 * own; a redirecting one (nftables, iptables) asks for proxy ports in the plan and writes its rules in
 * `commit`, in one transaction.
 */
export interface Portal {
  readonly kind: 'address' | 'none' | 'nftables' | 'iptables' | 'portproxy';

  /**
   * Whether it leads traffic to proxy ports with rules; absent: it does not. Only such a portal is told
   * `served` and `splitTraffic`, and so asked when a service port gets its first endpoint or loses its
   * last one. Its rules are changed before listeners that are not needed any more close.
   */
  readonly redirects?: boolean;

  /** Decides, without side effects outside this object, who listens where. Removals count first. */
  plan(set: readonly ServicePortPortals[], remove: readonly string[]): PortalPlan;

  /**
   * Another program holds the port of a listener that this portal has chosen. The next plan chooses another
   * one, if there is one. Absent: the portal chooses no ports.
   */
  portTaken?(servicePort: string, listen: ListenSpec): void;

  /**
   * The portals that are missing now, as `PortalPlan.problems` has it, but with what has become of the plan and of
   * later attempts. Asked at each sync, so it may not cost what is missing. Absent: nothing is added to what the plan says.
   */
  problems?(): readonly PortalProblem[];

  /**
   * Provides what the listeners of the plan need, before the engine opens them; absent: nothing is
   * needed. Never rejects, as one that cannot be opened must not stop the others: `commit` tells.
   */
  prepare?(): Promise<void>;

  /**
   * The addresses that the host has by itself, where the portal adds others; absent: it adds none.
   * Node ports are opened on these only.
   */
  hostAddresses?(): readonly HostAddress[];

  /**
   * Makes the plan real outside the engine. `bound` tells the port of each listener of the service
   * ports that the plan changed.
   */
  commit(
    bound: ReadonlyMap<string, readonly { listen: ListenSpec; boundPort: number }[]>,
  ): Promise<void>;

  /** From now on `close` removes nothing: another process uses what is there. Absent: it never does. */
  leave?(): void;

  /** Ends what the portal holds. Idempotent. */
  close(): Promise<void>;
}

/** `ip:port/PROTOCOL`, with IPv6 addresses in brackets. */
export function portalText(place: {
  readonly address: string;
  readonly port: number;
  readonly protocol: Protocol;
}): string {
  return `${formatHostPort({ host: place.address, port: place.port })}/${place.protocol}`;
}

/** Whether two lists of listeners are the same, in the same order. */
export function sameListen(a: readonly ListenSpec[], b: readonly ListenSpec[]): boolean {
  return sameList(
    a,
    b,
    (one, other) =>
      one.address === other.address &&
      one.port === other.port &&
      one.traffic === other.traffic &&
      sameTexts(one.sourceRanges ?? [], other.sourceRanges ?? []),
  );
}

/** Whether two lists of texts are the same, in the same order. */
export function sameTexts(a: readonly string[], b: readonly string[]): boolean {
  return sameList(a, b, (one, other) => one === other);
}
