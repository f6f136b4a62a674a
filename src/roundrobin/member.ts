import type { EndpointSpec, Traffic } from '../proxysocket/spec.ts';
import { familyOf, type Family } from '../util/family.ts';
import { formatHostPort } from '../util/host-port.ts';
import type { ListNode } from '../util/linked-list.ts';
import { EndpointRecord } from './record.ts';
import type { SkipTicket } from './skip.ts';
import type { BalancerEndpoint, Pick } from './types.ts';

/** `ip:port` or `[ip]:port`: the identity of an endpoint. */
export function endpointText(endpoint: EndpointSpec): string {
  return formatHostPort({ host: endpoint.address, port: endpoint.port });
}

/** An endpoint with its balancer's state. */
export class Member implements BalancerEndpoint {
  readonly address: string;
  readonly port: number;
  readonly family: Family;
  readonly text: string;

  /** Made once, because every pick returns one of them. */
  readonly inTurn: Pick = { endpoint: this, sticky: false };
  readonly byAffinity: Pick = { endpoint: this, sticky: true };

  /** Its node in the pool of each kind of traffic that it may serve. */
  readonly nodes: Record<Traffic, ListNode<Member> | undefined> = {
    internal: undefined,
    external: undefined,
    cluster: undefined,
  };

  /** Set once it has left the service port. It never returns: the same address gets a new object. */
  gone = false;
  /** Consecutive failures. */
  failures = 0;
  /** Set while it is skipped. */
  skipped: SkipTicket<Member> | undefined;
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
