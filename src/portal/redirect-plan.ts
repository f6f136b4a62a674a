import { isIP } from 'node:net';
import type { ListenSpec, Protocol } from '../proxysocket/spec.ts';
import { type Family, familyOf } from '../util/family.ts';
import { compare } from './claims.ts';
import { type Listener, ListenPlan, protocolOf } from './listen-plan.ts';
import {
  portalText,
  type PortalPlan,
  type PortalProblem,
  type PortalSpec,
  type ServicePortPortals,
} from './portal.ts';
import type { PortAllocator } from './proxy-ports.ts';

type Why = readonly [code: string, text: string];

const NO_ADDRESS: Why = ['KPNG_SERVICE_INVALID', 'that is not an address'];
const NO_PORT: Why = ['KPNG_SERVICE_INVALID', 'a port is a number from 1 to 65535'];
const NO_RANGES: Why = ['KPNG_SERVICE_INVALID', 'a node port cannot be limited to source ranges'];
const NO_FAMILY: Why = [
  'KPNG_LISTEN_ADDRESS_NOT_AVAILABLE',
  'the host does not have that address family',
];

/** A portal that can never work. */
interface Fault {
  readonly portal: PortalSpec;
  readonly why: Why;
}

/** Why a portal can never work; undefined: it can. `families`: those of the portal that the host has. */
function faultOf(
  { address, port, sourceRanges }: PortalSpec,
  families: readonly Family[],
): Why | undefined {
  if (address !== undefined && (isIP(address) === 0 || address.includes('%'))) return NO_ADDRESS;
  if (!Number.isInteger(port) || port < 1 || port > 65_535) return NO_PORT;
  if (address === undefined && sourceRanges.length > 0) return NO_RANGES;
  return families.length === 0 ? NO_FAMILY : undefined;
}

/** The faults of all service ports, counted incrementally: there may be hundreds of thousands. */
class FaultCounts {
  /** The first fault and their number, by code and service port. */
  readonly #byCode = new Map<
    string,
    { count: number; readonly byServicePort: Map<string, { first: Fault; count: number }> }
  >();

  set(name: string, faults: readonly Fault[]): void {
    if (faults.length === 0 && this.#byCode.size === 0) return;
    for (const group of this.#byCode.values()) {
      group.count -= group.byServicePort.get(name)?.count ?? 0;
      group.byServicePort.delete(name);
    }
    for (const [code, [first, ...others]] of Map.groupBy(faults, ({ why }) => why[0])) {
      if (first === undefined) continue;
      const group = this.#byCode.get(code) ?? { count: 0, byServicePort: new Map() };
      this.#byCode.set(code, group);
      group.count += 1 + others.length;
      group.byServicePort.set(name, { first, count: 1 + others.length });
    }
  }

  problems(): PortalProblem[] {
    return [...this.#byCode].flatMap(([code, { count, byServicePort }]) => {
      const [servicePort, { first } = { first: undefined }] =
        byServicePort.entries().next().value ?? [];
      if (servicePort === undefined || first === undefined) return [];
      const { portal, why } = first;
      const message = `${servicePort} cannot have ${portalText(portal)}: ${why[1]}`;
      return [{ servicePort, portal, code, message, count }];
    });
  }
}

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

interface RedirectPlanOptions {
  readonly allocator: PortAllocator;
  /** The bind addresses of proxy ports, by family; a missing family is not served. */
  readonly bindAddresses: Readonly<Partial<Record<Family, string>>>;
  /** Packets arrive unchanged at transparent sockets, see `ListenSpec`. Default: false. */
  readonly transparent?: boolean;
}

/**
 * Common to redirecting portals: the portals and proxy ports of each service port, and the resulting redirects.
 *
 * A service port has one listener for each family and kind of traffic, or for each family when all traffic has the
 * same endpoints. A node port and a service address with the same port do not conflict.
 */
export class RedirectPlan extends ListenPlan<PortalSpec> {
  protected readonly bindAddresses: RedirectPlanOptions['bindAddresses'];
  readonly #transparent: boolean;
  /** Those that the host has, of an address of a family, and of a node port. */
  readonly #families: Readonly<Record<Family | 'all', readonly Family[]>>;
  readonly #faults = new FaultCounts();

  constructor({ allocator, bindAddresses, transparent = false }: RedirectPlanOptions) {
    super(allocator);
    this.bindAddresses = bindAddresses;
    const all = ([4, 6] as const).filter((family) => bindAddresses[family] !== undefined);
    const only = (one: Family): Family[] => all.filter((family) => family === one);
    this.#families = { 4: only(4), 6: only(6), all };
    this.#transparent = transparent;
  }

  override plan(set: readonly ServicePortPortals[], remove: readonly string[]): PortalPlan {
    for (const name of remove) this.#faults.set(name, []);
    return super.plan(set, remove);
  }

  override problems(): PortalProblem[] {
    return [...this.#faults.problems(), ...super.problems()];
  }

  /** The redirects of the portals that a service port holds; empty if there is no such service port. */
  redirectsOf(name: string): Redirect[] {
    const wanted = this.wanted(name);
    if (wanted === undefined) return [];
    const { served } = wanted;
    const portOf = this.portsOf(name);
    const redirects: Redirect[] = [];
    for (const portal of this.held(name)) {
      const isServed = served?.[portal.traffic] ?? true;
      const clusterTraffic = portal.clusterClients?.traffic ?? portal.traffic;
      const isEntered = isServed || served?.[clusterTraffic] === true;
      const drops = !isServed && Object.values(served ?? {}).includes(true);
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
    return this.bound(name).flatMap(([{ address }, port]) =>
      port === undefined ? [] : [{ family: familyOf(address), protocol, port }],
    );
  }

  portTaken(servicePort: string, listen: ListenSpec): void {
    this.replacePort(servicePort, listen);
  }

  protected claimsOf({ servicePort, portals }: ServicePortPortals): readonly PortalSpec[] {
    const faults: Fault[] = [];
    for (const portal of portals) {
      const why = faultOf(portal, this.#familiesOf(portal));
      if (why !== undefined) faults.push({ portal, why });
    }
    this.#faults.set(servicePort, faults);
    if (faults.length === 0) return portals;
    const faulty = new Set(faults.map(({ portal }) => portal));
    return portals.filter((portal) => !faulty.has(portal));
  }

  /** One for each family and kind of traffic of the portals. */
  protected listenersOf(wanted: ServicePortPortals, held: readonly PortalSpec[]): Listener[] {
    const all: Listener[] = [];
    for (const portal of held) {
      for (const family of this.#familiesOf(portal)) {
        all.push(this.#listenerFor(wanted, portal, family));
      }
    }
    return all.sort((a, b) => compare(a.address, b.address) || compare(a.traffic, b.traffic));
  }

  protected portalOf(portal: PortalSpec): PortalSpec {
    return portal;
  }

  protected isOnProxyPort(): boolean {
    return !this.#transparent;
  }

  #familiesOf({ address }: PortalSpec): readonly Family[] {
    return address === undefined ? this.#families.all : this.#families[familyOf(address)];
  }

  /** The listener of a portal in a family that the host has. */
  #listenerFor(
    { splitTraffic = true }: ServicePortPortals,
    portal: PortalSpec,
    family: Family,
  ): Listener {
    const address = this.bindAddresses[family] ?? '';
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
    const own = portal.address ?? (family === 4 ? '0.0.0.0' : '::');
    return { address: own, port, traffic, transparent: [], ...more };
  }
}
