import type { BalancerEndpoint } from '../../roundrobin/endpoint.ts';
import type { Clock } from '../../util/clock.ts';
import { familyOf, type Family } from '../../util/family.ts';
import { isHostAddress } from '../../util/host-addresses.ts';
import type { ServicePort } from './service-port.ts';
import { routeKey, type SharedServicePorts } from './shared-service-ports.ts';
import type { PortalAddress } from '../spec.ts';

/** How long a result is valid without a reported change: the host's addresses may change. Milliseconds. */
const VERDICT_MS = 5000;

/** Every address of the host, of one family; connecting to one of them means this host. */
const EVERY: Readonly<Record<string, Family>> = { '0.0.0.0': 4, '::': 6 };

/** A service port, or the name of one that has had no client. */
type Owner = ServicePort | string;

/**
 * Finds TCP endpoints that loop back to their service port, directly or through other service ports of this process:
 * each connection to one would make another, until no descriptor is left. (UDP sessions count hops.) Which service
 * ports are behind another one is found once after a change.
 */
export class LoopGuard {
  readonly #clock: Clock;
  readonly #shared: Pick<SharedServicePorts<object>, 'dormant' | 'get'>;
  readonly #isHost: (address: string) => boolean;
  readonly #listeners = new Map<string, ServicePort>();
  /** Addresses that packet rules redirect elsewhere: packets never get to a listener of the same address. */
  readonly #portals = new Map<string, ServicePort>();
  readonly #portalsOf = new Map<ServicePort, readonly string[]>();
  #version = 0;
  /** Service ports behind the endpoints of another one, by its name. */
  #behind = { version: 0, at: 0, owners: new Map<string, readonly Owner[]>() };

  constructor(
    clock: Clock,
    shared: Pick<SharedServicePorts<object>, 'dormant' | 'get'>,
    isHost = isHostAddress,
  ) {
    this.#clock = clock;
    this.#shared = shared;
    this.#isHost = isHost;
  }

  /** A listener of this process opened for the service port there, or closed; `0.0.0.0` and `::` mean every address. */
  setListener(address: string, port: number, owner: ServicePort | undefined): void {
    const every = EVERY[address];
    const key = routeKey(every ?? 4, every === undefined ? address : undefined, port);
    if (owner !== undefined) this.#listeners.set(key, owner);
    else this.#listeners.delete(key);
    this.changed();
  }

  setPortals(owner: ServicePort, addresses: readonly PortalAddress[]): void {
    for (const key of this.#portalsOf.get(owner) ?? []) {
      // It may have passed to another service port, which came before this one left.
      if (this.#portals.get(key) === owner) this.#portals.delete(key);
    }
    // A node port is on every address of the host, of both families.
    const keys = addresses.flatMap(({ address, port }) => [
      routeKey(4, address, port),
      ...(address === undefined ? [routeKey(6, address, port)] : []),
    ]);
    if (keys.length === 0) this.#portalsOf.delete(owner);
    else this.#portalsOf.set(owner, keys);
    for (const key of keys) this.#portals.set(key, owner);
  }

  changed(): void {
    this.#version += 1;
  }

  /** Whether a connection of the service port to the endpoint would come back to the service port. */
  loopsBack({ name }: ServicePort, endpoint: BalancerEndpoint): boolean {
    const first = this.#ownerOf(endpoint);
    if (first === undefined) return false;
    const seen = new Set<string>();
    const rest = [first];
    for (let next = rest.pop(); next !== undefined; next = rest.pop()) {
      const found = nameOf(next);
      if (found === name) return true;
      if (seen.has(found)) continue;
      seen.add(found);
      for (const owner of this.#ownersBehind(next)) rest.push(owner);
    }
    return false;
  }

  #ownersBehind(owner: Owner): readonly Owner[] {
    const { version, at } = this.#behind;
    const now = this.#clock.now();
    if (version !== this.#version || now - at >= VERDICT_MS)
      this.#behind = { version: this.#version, at: now, owners: new Map() };
    const known = this.#behind.owners.get(nameOf(owner));
    if (known !== undefined) return known;
    const found = new Map<string, Owner>();
    const endpoints =
      typeof owner === 'string' ? this.#shared.get(owner)?.endpoints : owner.balancer.endpoints();
    for (const endpoint of endpoints ?? []) {
      const next = this.#ownerOf(endpoint);
      if (next !== undefined) found.set(nameOf(next), next);
    }
    const owners = [...found.values()];
    this.#behind.owners.set(nameOf(owner), owners);
    return owners;
  }

  #ownerOf({ address, port }: Pick<BalancerEndpoint, 'address' | 'port'>): Owner | undefined {
    const family = familyOf(address);
    const [one, every] = [routeKey(family, address, port), routeKey(family, undefined, port)];
    const portal = (key: string) => this.#portals.get(key) ?? this.#shared.dormant(key);
    const listener = (key: string) => this.#listeners.get(key);
    for (const ownerAt of [portal, listener]) {
      const owner = ownerAt(one);
      if (owner !== undefined) return owner;
      const ofAll = ownerAt(every);
      if (ofAll !== undefined && (address in EVERY || this.#isHost(address))) return ofAll;
    }
    return undefined;
  }
}

function nameOf(owner: Owner): string {
  return typeof owner === 'string' ? owner : owner.name;
}
