import type { RoundRobinBalancer } from '../../roundrobin/balancer.ts';
import type { BalancerEndpoint, Pick, PickRequest } from '../../roundrobin/endpoint.ts';
import type { PortRange } from '../../util/port-range.ts';
import type { TcpDial } from './transport.ts';

const NONE: readonly BalancerEndpoint[] = [];

/**
 * Chooses the next endpoint for a client: an untried one, if there is one. Those that timed out are retried after that,
 * with the longer timeouts of later attempts; those that refused are not.
 */
export class EndpointPicker<Attempt> {
  readonly #attempts: readonly Attempt[];
  /** Attempts so far, including the current one. */
  made = 0;
  tried = NONE;
  #refused = NONE;

  constructor(attempts: readonly Attempt[]) {
    this.#attempts = attempts;
  }

  get attempt(): Attempt | undefined {
    return this.#attempts[this.made - 1];
  }

  /** Picks for the next attempt; undefined when none is left to make. `request` knows `tried` of this object. */
  next(balancer: RoundRobinBalancer, request: PickRequest): Pick | undefined {
    if (this.made >= this.#attempts.length) return undefined;
    let pick = balancer.pick(request);
    // A balancer without untried endpoints returns a tried one.
    if (pick !== undefined && this.tried.includes(pick.endpoint)) {
      this.tried = this.#refused;
      pick = balancer.pick(request);
    }
    if (pick === undefined || this.tried.includes(pick.endpoint)) return undefined;
    this.made += 1;
    return pick;
  }

  /** The current attempt failed; `slow`: it timed out, so more time may help. */
  failed(endpoint: BalancerEndpoint, slow: boolean): void {
    this.tried = [...this.tried, endpoint];
    if (!slow) this.#refused = [...this.#refused, endpoint];
  }

  /** The current attempt does not count: the next one has the same timeout. */
  withdraw(): void {
    this.made -= 1;
  }
}

/**
 * For an endpoint of this host, the kernel may choose the endpoint's port as our local port. If no process listens
 * there, TCP connects the socket to itself: clients would get their own bytes, and the endpoint not its port.
 * `kernelPorts`: those that the kernel chooses; undefined: any.
 */
export function isSelfConnect(
  dial: TcpDial,
  { address, port }: BalancerEndpoint,
  kernelPorts: PortRange | undefined,
): boolean {
  if (kernelPorts !== undefined && (port < kernelPorts.first || port > kernelPorts.last))
    return false;
  const local = dial.localAddress();
  return local.port === port && local.address === address;
}
