import type { EndpointSpec, Traffic } from '../proxysocket/spec.ts';
import { familyOf, type Family } from '../util/family.ts';
import { formatHostPort } from '../util/host-port.ts';
import type { ListNode } from '../util/linked-list.ts';

/** `ip:port` or `[ip]:port`: the identity of an endpoint. */
export function endpointText(endpoint: EndpointSpec): string {
  return formatHostPort({ host: endpoint.address, port: endpoint.port });
}

export class Member {
  readonly address: string;
  readonly port: number;
  readonly family: Family;
  /** `ip:port` or `[ip]:port`. */
  readonly text: string;

  /** Made once, because every pick returns one of them. */
  readonly inTurn: Pick = { endpoint: this, sticky: false };
  readonly byAffinity: Pick = { endpoint: this, sticky: true };

  /** Its node in the rotation of each kind of traffic that it may serve. */
  readonly nodes: Record<Traffic, ListNode<Member> | undefined> = {
    internal: undefined,
    external: undefined,
    cluster: undefined,
  };

  /** Set once it has left the service port. It never returns: the same address gets a new object. */
  gone = false;
  failures = 0;
  /** On the balancer's clock. */
  skippedUntil = 0;
  /** Undefined while it is empty, so that very many idle endpoints cost nothing. */
  recorded: EndpointRecord | undefined = undefined;

  constructor(text: string, { address, port }: EndpointSpec) {
    this.text = text;
    this.address = address;
    this.port = port;
    this.family = familyOf(address);
  }

  get record(): EndpointRecord {
    return (this.recorded ??= new EndpointRecord());
  }
}

/**
 * The history of an endpoint since it joined its service port. Times are milliseconds of the balancer's clock. Only
 * the last attempt decides whether it fails: time without clients proves nothing.
 */
class EndpointRecord {
  /** TCP connections accepted by it, and UDP sessions opened to it. */
  connections = 0;
  /** Of ended ones: from clients to the endpoint. */
  bytesIn = 0;
  bytesOut = 0;
  errors = 0;
  /** Smoothed over the last eight connections or so; undefined before the first. UDP has no connect time. */
  connectMs: number | undefined = undefined;
  /** Time of the last successful attempt; UDP: of the last session's first answer. */
  connectedAt: number | undefined = undefined;
  /** Time of the first failure since the last success; undefined: the last attempt succeeded, or there was none. */
  failingSince: number | undefined = undefined;
  lastError: { readonly cause: string; readonly at: number } | undefined = undefined;

  connected(at: number, connectMs: number | undefined): void {
    this.connectedAt = at;
    this.failingSince = undefined;
    if (connectMs === undefined) return;
    const before = this.connectMs;
    this.connectMs = before === undefined ? connectMs : before + (connectMs - before) / 8;
  }

  failed(at: number, cause: string): void {
    this.errors += 1;
    this.failingSince ??= at;
    this.lastError = { cause, at };
  }
}

/** An endpoint in a balancer: the same object while it stays in the service port, so it may be used as a key. */
export type BalancerEndpoint = Omit<
  Readonly<Member>,
  'inTurn' | 'byAffinity' | 'nodes' | 'gone' | 'failures' | 'skippedUntil'
>;

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
  readonly sticky: boolean;
}
