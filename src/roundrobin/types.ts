import type { Traffic } from '../proxysocket/spec.ts';
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
