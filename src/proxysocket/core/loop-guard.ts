import type { BalancerEndpoint } from '../../roundrobin/types.ts';
import type { Clock } from '../../util/clock.ts';
import { hostAddresses } from '../../util/host-addresses.ts';
import type { ServicePort } from './service-port.ts';
import type { PortalAddress } from '../spec.ts';

/** The listeners: by port, then by address or the wildcard mark. */
type Owners = Map<number, Map<string, ServicePort>>;

/** How long a result is valid without a reported change: the host's addresses may change. Milliseconds. */
const VERDICT_MS = 5000;

/** Stands for every address of the host, of one family. */
const EVERY: Readonly<Record<string, string>> = { '0.0.0.0': '*4', '::': '*6' };

interface CachedResult {
  readonly version: number;
  readonly at: number;
  readonly loop: boolean;
}

/**
 * Finds TCP endpoints that loop back to their service port: addresses that this process serves for it, directly or
 * through the endpoints of other service ports. Each connection to one would make another, until no descriptor is
 * left. (UDP sessions count hops instead.)
 *
 * For an endpoint whose port is not listened on here, which is nearly every one, the check is one map lookup.
 */
export class LoopGuard {
  readonly #clock: Clock;
  readonly #readHost: () => readonly string[];
  readonly #listeners: Owners = new Map();
  /** Addresses that packet rules redirect elsewhere: packets never get to a listener of the same address. */
  readonly #portals: Owners = new Map();
  readonly #addressesOf = new Map<ServicePort, readonly PortalAddress[]>();
  readonly #results = new WeakMap<BalancerEndpoint, CachedResult>();
  #version = 0;
  #host: { readonly at: number; readonly addresses: ReadonlySet<string> } | undefined;

  constructor(
    clock: Clock,
    readHost: () => readonly string[] = () => hostAddresses().map(({ address }) => address),
  ) {
    this.#clock = clock;
    this.#readHost = readHost;
  }

  /** A listener of this process opened for the service port there, or closed; `0.0.0.0` and `::` mean every address. */
  setListener(address: string, port: number, owner: ServicePort | undefined): void {
    const key = EVERY[address] ?? address;
    if (owner !== undefined) add(this.#listeners, key, port, owner);
    else remove(this.#listeners, key, port);
    this.changed();
  }

  /** Replaces the addresses that packet rules redirect to a service port. */
  setPortals(owner: ServicePort, addresses: readonly PortalAddress[]): void {
    for (const [address, port] of keysOf(this.#addressesOf.get(owner) ?? [])) {
      // It may have passed to another service port, which came before this one left.
      if (this.#portals.get(port)?.get(address) === owner) remove(this.#portals, address, port);
    }
    if (addresses.length === 0) this.#addressesOf.delete(owner);
    else this.#addressesOf.set(owner, addresses);
    for (const [address, port] of keysOf(addresses)) add(this.#portals, address, port, owner);
  }

  /** Endpoints, or the owners of listeners, may have changed. */
  changed(): void {
    this.#version += 1;
  }

  /** Whether a connection of the service port to the endpoint would come back to the service port. */
  loopsBack(owner: ServicePort, endpoint: BalancerEndpoint): boolean {
    const { port } = endpoint;
    if (!this.#listeners.has(port) && !this.#portals.has(port)) return false;
    const known = this.#results.get(endpoint);
    const now = this.#clock.now();
    if (known !== undefined && known.version === this.#version && now - known.at < VERDICT_MS) {
      return known.loop;
    }
    const loop = this.#reaches(endpoint, owner);
    this.#results.set(endpoint, { version: this.#version, at: now, loop });
    return loop;
  }

  /** Visits each endpoint that is reachable through this one, once. */
  #reaches(endpoint: BalancerEndpoint, wanted: ServicePort): boolean {
    const seen = new Set<ServicePort>();
    const rest = [endpoint];
    for (let next = rest.pop(); next !== undefined; next = rest.pop()) {
      const owner = this.#ownerOf(next);
      if (owner === wanted) return true;
      if (owner === undefined || seen.has(owner)) continue;
      seen.add(owner);
      for (const behind of owner.balancer.endpoints()) rest.push(behind);
    }
    return false;
  }

  #ownerOf(endpoint: BalancerEndpoint): ServicePort | undefined {
    return this.#ownerIn(this.#portals, endpoint) ?? this.#ownerIn(this.#listeners, endpoint);
  }

  #ownerIn(owners: Owners, { address, port, family }: BalancerEndpoint): ServicePort | undefined {
    const atPort = owners.get(port);
    if (atPort === undefined) return undefined;
    const owner = atPort.get(address);
    if (owner !== undefined) return owner;
    const ofAll = atPort.get(family === 4 ? '*4' : '*6');
    return ofAll !== undefined && this.#isOfThisHost(address) ? ofAll : undefined;
  }

  #isOfThisHost(address: string): boolean {
    // Linux has all of 127.0.0.0/8, of which it lists one. Connecting to no address means this host.
    if (address.startsWith('127.') || address === '::1' || address in EVERY) return true;
    const now = this.#clock.now();
    if (this.#host === undefined || now - this.#host.at >= VERDICT_MS) {
      this.#host = { at: now, addresses: new Set(this.#readHost()) };
    }
    return this.#host.addresses.has(address);
  }
}

function add(owners: Owners, address: string, port: number, owner: ServicePort): void {
  const atPort = owners.get(port);
  if (atPort === undefined) owners.set(port, new Map([[address, owner]]));
  else atPort.set(address, owner);
}

function remove(owners: Owners, address: string, port: number): void {
  const atPort = owners.get(port);
  atPort?.delete(address);
  if (atPort?.size === 0) owners.delete(port);
}

/** A node port is on every address of the host, of both families. */
function keysOf(addresses: readonly PortalAddress[]): (readonly [string, number])[] {
  return addresses.flatMap(({ address, port }) =>
    address === undefined
      ? ([
          ['*4', port],
          ['*6', port],
        ] as const)
      : [[address, port] as const],
  );
}
