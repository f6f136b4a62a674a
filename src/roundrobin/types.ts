import type { AffinitySpec, EndpointChanges, EndpointSpec, Traffic } from '../proxysocket/spec.ts';
import type { Family } from '../util/family.ts';
import type { EndpointRecord } from './record.ts';

/**
 * An endpoint in a balancer. The same object represents the same `ip:port` as long as it stays in the service port,
 * so sockets may use it as a key.
 */
export interface BalancerEndpoint {
  readonly address: string;
  readonly port: number;
  readonly family: Family;
  /** `ip:port` or `[ip]:port`. */
  readonly text: string;
  /** Its history. */
  readonly record: EndpointRecord;
  /** The same; undefined while it is empty, so that very many idle endpoints cost nothing. */
  readonly recorded: EndpointRecord | undefined;
}

/** The request of a socket. */
export interface PickRequest {
  /**
   * IP literal of the client, without port; the affinity key. IPv4-mapped addresses already unmapped. May be a getter
   * with a system call, so read it only when affinity needs it.
   */
  readonly client: string;
  readonly traffic: Traffic;
  /** Family of the listener: its endpoints are preferred; the other family is used if there are none. */
  readonly family: Family;
  /** `ip:port` of the client's endpoint in the previous process, which it keeps if possible. Default: none. */
  readonly previous?: string | undefined;
  /** Endpoints that this client has tried without success. Empty on the first attempt. */
  readonly tried: readonly BalancerEndpoint[];
}

export interface Pick {
  readonly endpoint: BalancerEndpoint;
  /** Whether session affinity decided. */
  readonly sticky: boolean;
}

/** Chooses endpoints for one service port. */
export interface Balancer {
  /** Number of endpoints, usable or not. */
  readonly size: number;
  /** The endpoints, in their current order. */
  endpoints(): readonly BalancerEndpoint[];
  /**
   * Replaces the set of endpoints and returns the removed ones. The others keep their order. `admits` is called for
   * each new endpoint; those it refuses are left out.
   */
  update(
    endpoints: readonly EndpointSpec[],
    admits?: (endpoint: EndpointSpec) => boolean,
  ): readonly BalancerEndpoint[];
  /** Changes a few endpoints of many, in time that does not depend on the others; returns the removed ones. */
  patch(
    changes: EndpointChanges,
    admits?: (endpoint: EndpointSpec) => boolean,
  ): readonly BalancerEndpoint[];
  setAffinity(affinity: AffinitySpec): void;
  /** The next endpoint for a client, or undefined if none is left. O(1) without `tried`. */
  pick(request: PickRequest): Pick | undefined;
  /** Whether there is an endpoint for this traffic, skipped or not. */
  serves(traffic: Traffic): boolean;
  /** Number of endpoints whose last connection failed. */
  readonly failing: number;
  /** A connection to the endpoint failed: it is skipped for a while, unless all are. */
  connectFailed(endpoint: BalancerEndpoint, cause: string): void;
  /** A connection to the endpoint succeeded: it is no longer skipped. `connectMs`: how long it took, if known. */
  connected(endpoint: BalancerEndpoint, connectMs?: number): void;
}
