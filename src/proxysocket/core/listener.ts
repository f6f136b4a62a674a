import { BlockList, isIP, isIPv6 } from 'node:net';
import { networkInterfaces } from 'node:os';
import type { BalancerEndpoint } from '../../roundrobin/endpoint.ts';
import { familyOf, type Family } from '../../util/family.ts';
import { isHostAddress } from '../../util/host-addresses.ts';
import { sourceRangeInvalid } from '../events.ts';
import type { ListenSpec, ServicePortSpec, Traffic } from '../spec.ts';
import { hasInherited } from '../../util/inherited.ts';
import type { Listener } from './listener-table.ts';
import type { ServicePort } from './service-port.ts';

/** An open socket of a transport, or for a wildcard several. */
export interface Listening {
  readonly boundPort: number;
  /** Resolves when the port is free. Idempotent. */
  close(): Promise<void>;
}

/** Its listeners are the owners that it calls back. */
interface ListenTransport<L extends Listening> {
  listen(spec: ListenSpec, owner: never): Promise<L>;
}

/** What listeners of both protocols have in common: the service port that has them now, and which clients it admits. */
export abstract class OwnedListener<
  L extends Listening = Listening,
> implements Listener<ServicePort> {
  readonly family: Family;
  /** Several at one address, if an old process had several. */
  readonly sockets: L[] = [];
  owner: ServicePort;
  listen: ListenSpec;
  trafficOf: (from: ClientIp) => Traffic;
  readonly #transport: ListenTransport<L>;
  #admits: SourceFilter | undefined;

  constructor(listen: ListenSpec, owner: ServicePort, transport: ListenTransport<L>) {
    this.#transport = transport;
    this.family = familyOf(listen.address);
    this.owner = owner;
    this.listen = listen;
    this.trafficOf = trafficRule(owner.name, listen);
    this.#admits = sourceFilter(owner.name, listen.sourceRanges);
  }

  get count(): number {
    return this.sockets.length;
  }

  /** 0 before it is open. */
  get boundPort(): number {
    return this.sockets[0]?.boundPort ?? 0;
  }

  admits(from: ClientIp): boolean {
    return this.#admits?.(from.client) ?? true;
  }

  async open(spec: ListenSpec): Promise<void> {
    const { protocol } = this.owner;
    // An old process with more workers had a socket for each. Clients in their queues would be reset.
    do {
      this.sockets.push(await this.#transport.listen(spec, this as never));
    } while (hasInherited(protocol, spec.address, this.boundPort));
  }

  assign(owner: ServicePort, listen: ListenSpec): void {
    this.owner = owner;
    this.listen = listen;
    this.trafficOf = trafficRule(owner.name, listen);
    this.#admits = sourceFilter(owner.name, listen.sourceRanges);
  }

  /** TCP relays live on; UDP sessions end, since their answers leave through the listener. Idempotent. */
  async close(): Promise<void> {
    await Promise.all(this.sockets.splice(0).map((socket) => socket.close()));
  }
}

type SourceFilter = (client: string) => boolean;

/**
 * Makes the filter of a listener from CIDR ranges; undefined when all clients may connect.
 *
 * An invalid range admits no client, rather than all, and causes an event. A client whose address is not known
 * because it has already left is refused. `net.BlockList` takes about 0.1 us for a check in Node 26.
 */
export function sourceFilter(
  servicePort: string,
  ranges: readonly string[] | undefined,
): SourceFilter | undefined {
  if (ranges === undefined || ranges.length === 0) return undefined;
  // One for each family: in a common list, an IPv6 range such as ::/0 would also match IPv4 clients.
  const lists = { 4: new BlockList(), 6: new BlockList() };
  for (const range of ranges) {
    const [, address = '', prefix] = /^\s*([^/\s]+)\/(\d{1,3})\s*$/.exec(range) ?? [];
    const family = isIPv6(address) ? 6 : 4;
    try {
      lists[family].addSubnet(address, Number(prefix), TYPES[family]);
    } catch {
      if (sourceRangeInvalid.hasSubscribers) sourceRangeInvalid.publish({ servicePort, range });
    }
  }
  return (client) => {
    const family = isIP(client);
    return (family === 4 || family === 6) && lists[family].check(client, TYPES[family]);
  };
}

const TYPES = { 4: 'ipv4', 6: 'ipv6' } as const;

/** A client's IP literal, empty if it has left. Reading it may cost a system call. */
export interface ClientIp {
  readonly client: string;
}

function trafficRule(
  servicePort: string,
  { traffic, clusterClients }: ListenSpec,
): (from: ClientIp) => Traffic {
  if (clusterClients === undefined) return () => traffic;
  const isPod = sourceFilter(servicePort, clusterClients.networks);
  // Clients of the host itself count, and those in the networks; an unknown address does not.
  return ({ client }) =>
    isPod?.(client) === true || isHostAddress(client) ? clusterClients.traffic : traffic;
}

/**
 * The address that an endpoint is to see as that of the client; undefined: one of the host. That is so where the
 * endpoint's answers would not pass this process: it is this host, or reaches the client past it.
 */
export function clientSource(
  { keepsClients }: { readonly keepsClients?: ServicePortSpec['keepsClients'] | undefined },
  request: ClientIp & { readonly traffic: Traffic },
  { address, family }: Pick<BalancerEndpoint, 'address' | 'family'>,
): string | undefined {
  if (keepsClients === undefined || request.traffic === 'cluster') return undefined;
  if (keepsClients === 'external' && request.traffic !== 'external') return undefined;
  // It costs a system call.
  const { client } = request;
  if (isIP(client) !== family || client === address) return undefined;
  // A link-local address has no route from the endpoint.
  if (/^fe[89ab]/.test(client)) return undefined;
  if (isHostAddress(client) || isHostAddress(address)) return undefined;
  return shareLink(client, address) ? undefined : client;
}

/** How old the networks of the host may be. Milliseconds. */
const MAX_AGE_MS = 2000;

let known: { readonly networks: readonly SourceFilter[]; readonly readAt: number } | undefined;

/** Whether both addresses are in the network of one interface, such as a bridge, on which they reach each other. */
function shareLink(a: string, b: string): boolean {
  const now = performance.now();
  if (known === undefined || now - known.readAt > MAX_AGE_MS) {
    const addresses = Object.values(networkInterfaces()).flatMap((each = []) => each);
    const networks = addresses.flatMap(({ cidr }) =>
      cidr === null ? [] : (sourceFilter('', [cidr]) ?? []),
    );
    known = { networks, readAt: now };
  }
  return known.networks.some((includes) => includes(a) && includes(b));
}
