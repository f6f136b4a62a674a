import type { BalancerEndpoint } from '../../roundrobin/endpoint.ts';
import type { Clock } from '../../util/clock.ts';
import { familyOf, isWildcard } from '../../util/family.ts';
import { isHostAddress } from '../../util/host-addresses.ts';
import { routeKey, type AddressIndex } from './addresses.ts';

/** How long a result is valid without a reported change: the host's addresses may change. Milliseconds. */
const VERDICT_MS = 5000;

type Endpoint = Pick<BalancerEndpoint, 'address' | 'port'>;

/**
 * Finds TCP endpoints that loop back to their service port, directly or through other service ports of this process:
 * each connection to one would make another, until no descriptor is left. (UDP sessions count hops.) Which service
 * ports are behind another one is found once after a change.
 */
export class LoopGuard {
  readonly #clock: Clock;
  /** Addresses that packet rules redirect elsewhere: packets never get to a listener of the same address. */
  readonly #portals: Pick<AddressIndex, 'at'>;
  readonly #endpointsOf: (name: string) => readonly Endpoint[];
  readonly #isHost: (address: string) => boolean;
  /** The names of service ports. */
  readonly #listeners = new Map<string, string>();
  /** Service ports behind the endpoints of another one. */
  readonly #behind = new Map<string, readonly string[]>();
  #since = 0;

  /** `endpointsOf`: of any service port. */
  constructor(
    clock: Clock,
    portals: Pick<AddressIndex, 'at'>,
    endpointsOf: (name: string) => readonly Endpoint[],
    isHost = isHostAddress,
  ) {
    this.#clock = clock;
    this.#portals = portals;
    this.#endpointsOf = endpointsOf;
    this.#isHost = isHost;
  }

  /** A listener of this process opened for the service port there, or closed. */
  setListener(address: string, port: number, name: string | undefined): void {
    const key = routeKey(familyOf(address), isWildcard(address) ? undefined : address, port);
    if (name !== undefined) this.#listeners.set(key, name);
    else this.#listeners.delete(key);
    this.changed();
  }

  changed(): void {
    this.#behind.clear();
  }

  /** Whether a connection of the service port to the endpoint would come back to the service port. */
  loopsBack(name: string, endpoint: Endpoint): boolean {
    const first = this.#ownerOf(endpoint);
    if (first === undefined) return false;
    const reached = new Set([first]);
    // What is added meanwhile is visited, too.
    for (const next of reached) {
      if (next === name) return true;
      for (const owner of this.#ownersBehind(next)) reached.add(owner);
    }
    return false;
  }

  #ownersBehind(name: string): readonly string[] {
    const now = this.#clock.now();
    if (now - this.#since >= VERDICT_MS) {
      this.changed();
      this.#since = now;
    }
    const known = this.#behind.get(name);
    if (known !== undefined) return known;
    const found = new Set(this.#endpointsOf(name).flatMap((each) => this.#ownerOf(each) ?? []));
    const owners = [...found];
    this.#behind.set(name, owners);
    return owners;
  }

  #ownerOf({ address, port }: Endpoint): string | undefined {
    const family = familyOf(address);
    const [one, every] = [routeKey(family, address, port), routeKey(family, undefined, port)];
    const portal = (key: string) => this.#portals.at(key);
    const listener = (key: string) => this.#listeners.get(key);
    for (const ownerAt of [portal, listener]) {
      const owner = ownerAt(one);
      if (owner !== undefined) return owner;
      const ofAll = ownerAt(every);
      if (ofAll !== undefined && (isWildcard(address) || this.#isHost(address))) return ofAll;
    }
    return undefined;
  }
}
