import type { Protocol } from '../proxysocket/spec.ts';
import { FAMILIES, type Family, familyOf, WILDCARD } from '../util/family.ts';
import { compare } from './claims.ts';
import { type Listener, ListenPlan, protocolOf } from './listen-plan.ts';
import type { PortalSpec, ServicePortPortals } from './portal.ts';
import type { PortAllocator } from './proxy-ports.ts';

/** A portal in one family, and the target of its traffic. */
export interface Redirect {
  readonly family: Family;
  readonly portal: PortalSpec;
  /** Undefined: there is no endpoint, or the proxy port is not open. */
  readonly proxyPort: number | undefined;
  /**
   * Whether clients are dropped, so that they retry at other nodes, which have endpoints. With a proxy port only those
   * that are not `clusterClients`; otherwise all. Absent: no.
   */
  readonly drops?: boolean;
}

/** An open proxy port of a service port. */
export interface ProxyPort {
  readonly family: Family;
  readonly protocol: Protocol;
  readonly port: number;
}

/** The bind addresses of proxy ports, by family; a missing family is not served. */
type BindAddresses = Readonly<Partial<Record<Family, string>>>;

/**
 * Common to redirecting portals: the portals and proxy ports of each service port, and the resulting redirects.
 *
 * A service port has one listener for each family and kind of traffic, or for each family when all traffic has the
 * same endpoints. A node port and a service address with the same port do not conflict.
 */
export class RedirectPlan extends ListenPlan {
  readonly #bindAddresses: BindAddresses;
  readonly #transparent: boolean;
  /** Those that the host has, of an address of a family, and of a node port. */
  readonly #families: Readonly<Record<Family | 'all', readonly Family[]>>;
  protected readonly lack = 'the host does not have that address family';

  /** `transparent`: packets arrive unchanged at transparent sockets, see `ListenSpec`. */
  constructor(allocator: PortAllocator, bindAddresses: BindAddresses, transparent = false) {
    super(allocator);
    this.#bindAddresses = bindAddresses;
    const all = FAMILIES.filter((family) => bindAddresses[family] !== undefined);
    const only = (one: Family): Family[] => all.filter((family) => family === one);
    this.#families = { 4: only(4), 6: only(6), all };
    this.#transparent = transparent;
  }

  /** The redirects of the portals that a service port holds; empty if there is no such service port. */
  redirectsOf(name: string): Redirect[] {
    const wanted = this.wanted(name);
    if (wanted === undefined) return [];
    const { served } = wanted;
    const portOf = this.portsOf(name);
    const redirects: Redirect[] = [];
    for (const portal of this.held(name)) {
      const isServed = served[portal.traffic] === true;
      const clusterTraffic = portal.clusterClients?.traffic ?? portal.traffic;
      const isEntered = isServed || served[clusterTraffic] === true;
      const drops = !isServed && Object.values(served).includes(true);
      for (const family of this.#familiesOf(portal)) {
        const listener = this.#listenerFor(wanted, portal, family);
        const proxyPort = isEntered ? portOf(listener) : undefined;
        redirects.push({ family, portal, proxyPort, drops });
      }
    }
    return redirects;
  }

  proxyPortsOf(name: string): ProxyPort[] {
    const wanted = this.wanted(name);
    const protocol = wanted && protocolOf(wanted);
    if (protocol === undefined) return [];
    const portOf = this.portsOf(name);
    return this.listen(name).flatMap((spec) => {
      const port = portOf(spec);
      return port === undefined ? [] : [{ family: familyOf(spec.address), protocol, port }];
    });
  }

  protected claimsOf({ servicePort, portals }: ServicePortPortals): readonly PortalSpec[] {
    const isServable = (portal: PortalSpec): boolean => this.#familiesOf(portal).length > 0;
    const others = portals.filter((portal) => !isServable(portal));
    this.noteUnavailable(servicePort, others);
    // Not a copy, as there may be very many service ports.
    return others.length === 0 ? portals : portals.filter(isServable);
  }

  /** One for each family and kind of traffic of the portals. */
  protected listenersOf(wanted: ServicePortPortals, held: readonly PortalSpec[]): Listener[] {
    const all = held.flatMap((portal) =>
      this.#familiesOf(portal).map((family) => this.#listenerFor(wanted, portal, family)),
    );
    return all.sort((a, b) => compare(a.address, b.address) || compare(a.traffic, b.traffic));
  }

  protected isOnProxyPort(): boolean {
    return !this.#transparent;
  }

  #familiesOf({ address }: PortalSpec): readonly Family[] {
    return address === undefined ? this.#families.all : this.#families[familyOf(address)];
  }

  /** The listener of a portal in a family that the host has. */
  #listenerFor({ splitTraffic }: ServicePortPortals, portal: PortalSpec, family: Family): Listener {
    const address = this.#bindAddresses[family] ?? '';
    const { protocol, port, clusterClients } = portal;
    const traffic = splitTraffic ? portal.traffic : 'internal';
    const more = splitTraffic && clusterClients !== undefined ? { clusterClients } : undefined;
    if (!this.#transparent) return { address, traffic, ...more };
    if (protocol === 'TCP') {
      // They share a socket, so none takes a port of the range.
      const transparent = [{ address: portal.address, port }];
      return { address, port: 0, traffic, transparent, ...more };
    }
    // Answers have to come from the address and port that the client has sent to.
    const own = portal.address ?? WILDCARD[family];
    return { address: own, port, traffic, transparent: [], ...more };
  }
}
