import { isDeepStrictEqual } from 'node:util';
import { isIP } from 'node:net';
import type { ListenSpec, PortalAddress, Protocol } from '../proxysocket/spec.ts';
import { type Family, familyOf } from '../util/family.ts';
import { ClaimTable, compare } from './claims.ts';
import {
  isSamePlace,
  listenerIndex,
  type PortAllocator,
  type ProxyListener,
  ProxyPorts,
} from './proxy-ports.ts';
import {
  type BoundPorts,
  type PortalPlan,
  type PortalProblem,
  type PortalSpec,
  portalText,
  type ServicePortPortals,
} from './portal.ts';

/** The problem of a portal, and its code. */
type Why = readonly [code: string, text: string];

const NO_ADDRESS: Why = ['KPNG_SERVICE_INVALID', 'that is not an address'];
const NO_PORT: Why = ['KPNG_SERVICE_INVALID', 'a port is a number from 1 to 65535'];
const NO_RANGES: Why = ['KPNG_SERVICE_INVALID', 'a node port cannot be limited to source ranges'];
const NO_FAMILY: Why = [
  'KPNG_LISTEN_ADDRESS_NOT_AVAILABLE',
  'the host does not have that address family',
];

/** A portal that can never work. */
export interface Fault {
  readonly portal: PortalSpec;
  readonly why: Why;
}

/** `10.0.0.1:80/TCP`, or `node port 30080/TCP`. */
export function portalName({ address, port, protocol }: PortalSpec): string {
  if (address === undefined) return `node port ${port}/${protocol}`;
  return portalText({ address, port, protocol });
}

/** Why a portal can never work; undefined: it can. `families`: those of the portal that the host has. */
export function faultOf(
  { address, port, sourceRanges }: PortalSpec,
  families: readonly (4 | 6)[],
): Why | undefined {
  if (address !== undefined && (isIP(address) === 0 || address.includes('%'))) return NO_ADDRESS;
  if (!Number.isInteger(port) || port < 1 || port > 65_535) return NO_PORT;
  if (address === undefined && sourceRanges.length > 0) return NO_RANGES;
  return families.length === 0 ? NO_FAMILY : undefined;
}

/** The faults of all service ports, counted incrementally: there may be hundreds of thousands. */
export class FaultCounts {
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

  /** At most one per code. */
  problems(): PortalProblem[] {
    return [...this.#byCode].flatMap(([code, { count, byServicePort }]) => {
      const [servicePort, { first } = { first: undefined }] =
        byServicePort.entries().next().value ?? [];
      if (servicePort === undefined || first === undefined) return [];
      const { portal, why } = first;
      const message = `${servicePort} cannot have ${portalName(portal)}: ${why[1]}`;
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

export interface RedirectPlanOptions {
  readonly allocator: PortAllocator;
  /** The bind addresses of proxy ports, by family; a missing family is not served. */
  readonly bindAddresses: Readonly<Partial<Record<Family, string>>>;
  /** Packets arrive unchanged at transparent sockets, see `ListenSpec`. Default: false. */
  readonly transparent?: boolean;
}

/** A listener to which further addresses may be added. */
type Needed = ProxyListener & { readonly transparent?: PortalAddress[] };

interface Entry {
  readonly wanted: ServicePortPortals;
  /** As last planned; undefined: always reported. */
  listen: readonly ListenSpec[] | undefined;
  /** Actual port of each of these; undefined: it is not open. */
  ports: readonly (number | undefined)[];
}

/**
 * Common to redirecting portals: the portals and proxy ports of each service port, and the resulting redirects.
 *
 * A service port has one listener for each family and kind of traffic, or for each family when all traffic has the
 * same endpoints. A node port and a service address with the same port do not conflict.
 */
export class RedirectPlan {
  readonly #ports: ProxyPorts;
  readonly #bindAddresses: RedirectPlanOptions['bindAddresses'];
  readonly #transparent: boolean;
  /** Those that the host has, of an address of a family, and of a node port. */
  readonly #families: Readonly<Record<Family | 'all', readonly Family[]>>;
  readonly #entries = new Map<string, Entry>();
  readonly #claims = new ClaimTable<PortalSpec>();
  readonly #faults = new FaultCounts();
  /** Service ports whose redirects may differ since `settle` was last called. */
  #touched = new Set<string>();

  constructor({ allocator, bindAddresses, transparent = false }: RedirectPlanOptions) {
    this.#ports = new ProxyPorts(allocator);
    this.#bindAddresses = bindAddresses;
    const all = ([4, 6] as const).filter((family) => bindAddresses[family] !== undefined);
    const only = (one: Family): Family[] => all.filter((family) => family === one);
    this.#families = { 4: only(4), 6: only(6), all };
    this.#transparent = transparent;
  }

  plan(set: readonly ServicePortPortals[], remove: readonly string[]): PortalPlan {
    for (const name of remove) this.#forget(name);
    const claims = new Map(set.map((wanted) => [wanted.servicePort, this.#remember(wanted)]));
    const changed = this.#claims.update(claims, remove);
    const needed = new Map<string, readonly ProxyListener[]>();
    for (const names of [remove, claims.keys(), changed]) {
      for (const name of names) if (!needed.has(name)) needed.set(name, this.#needed(name));
    }
    this.#ports.update(needed);
    const listen = new Map<string, readonly ListenSpec[]>();
    for (const name of needed.keys()) {
      this.#touched.add(name);
      const entry = this.#entries.get(name);
      if (entry === undefined) continue;
      const now = this.#ports.listen(name);
      if (entry.listen !== undefined && isDeepStrictEqual(now, entry.listen)) continue;
      const portOf = portsOf(entry);
      entry.ports = now.map(portOf);
      entry.listen = now;
      listen.set(name, now);
    }
    return { listen, problems: this.problems() };
  }

  portTaken(name: string, listen: ListenSpec): void {
    this.#ports.portTaken(name, listen);
  }

  /**
   * Records the ports that listeners got. Returns the service ports whose redirects may differ since the last call.
   */
  settle(bound: Iterable<BoundPorts>): ReadonlySet<string> {
    for (const [name, list] of bound) {
      const entry = this.#entries.get(name);
      if (entry === undefined) continue;
      const indexOf = listenerIndex(list.map(({ listen }) => listen));
      entry.ports = (entry.listen ?? []).map((spec) => list[indexOf(spec)]?.boundPort);
      for (const { boundPort } of list) this.#ports.opened(name, boundPort);
      this.#touched.add(name);
    }
    const touched = this.#touched;
    this.#touched = new Set();
    return touched;
  }

  /** The redirects of the portals that a service port holds; empty if there is no such service port. */
  redirects(name: string): Redirect[] {
    const entry = this.#entries.get(name);
    if (entry === undefined) return [];
    const { served } = entry.wanted;
    const portOf = portsOf(entry);
    const redirects: Redirect[] = [];
    for (const portal of this.#claims.held(name)) {
      const isServed = served?.[portal.traffic] ?? true;
      const clusterTraffic = portal.clusterClients?.traffic ?? portal.traffic;
      const isEntered = isServed || served?.[clusterTraffic] === true;
      const drops = !isServed && Object.values(served ?? {}).includes(true);
      for (const family of this.#familiesOf(portal)) {
        const listener = this.#listenerFor(entry.wanted, portal, family);
        const proxyPort = isEntered ? portOf(listener) : undefined;
        redirects.push({ family, portal, proxyPort, drops });
      }
    }
    return redirects;
  }

  proxyPorts(name: string): ProxyPort[] {
    const { wanted, listen = [], ports = [] } = this.#entries.get(name) ?? {};
    const protocol = protocolOf(wanted);
    if (protocol === undefined) return [];
    return listen.flatMap(({ address }, index) => {
      const port = ports[index];
      return port === undefined ? [] : [{ family: familyOf(address), protocol, port }];
    });
  }

  #forget(name: string): void {
    this.#entries.delete(name);
    this.#faults.set(name, []);
  }

  /** Records the portals of a service port, and returns those that can work. */
  #remember(wanted: ServicePortPortals): readonly PortalSpec[] {
    const { servicePort: name, portals } = wanted;
    const faults: Fault[] = [];
    for (const portal of portals) {
      const why = faultOf(portal, this.#familiesOf(portal));
      if (why !== undefined) faults.push({ portal, why });
    }
    const previous = this.#entries.get(name);
    // With another protocol the engine opens new listeners, even though they look the same here.
    const isSame = previous !== undefined && protocolOf(previous.wanted) === protocolOf(wanted);
    const fresh = { listen: previous === undefined ? [] : undefined, ports: [] };
    this.#entries.set(name, { ...(isSame ? previous : fresh), wanted });
    this.#faults.set(name, faults);
    if (faults.length === 0) return portals;
    const faulty = new Set(faults.map(({ portal }) => portal));
    return portals.filter((portal) => !faulty.has(portal));
  }

  #familiesOf({ address }: PortalSpec): readonly Family[] {
    return address === undefined ? this.#families.all : this.#families[familyOf(address)];
  }

  /** One for each family and kind of traffic of the service port's portals. */
  #needed(name: string): ProxyListener[] {
    const wanted = this.#entries.get(name)?.wanted;
    if (wanted === undefined) return [];
    const all: Needed[] = [];
    for (const portal of this.#claims.held(name)) {
      for (const family of this.#familiesOf(portal)) {
        all.push(this.#listenerFor(wanted, portal, family));
      }
    }
    if (all.length < 2) return all;
    all.sort((a, b) => compare(a.address, b.address) || compare(a.traffic, b.traffic));
    const needed: Needed[] = [];
    for (const listener of all) {
      const last = needed.at(-1);
      if (last === undefined || !isSamePlace(last, listener)) needed.push(listener);
      else last.transparent?.push(...(listener.transparent ?? []));
    }
    return needed;
  }

  /** The listener of a portal in a family that the host has. */
  #listenerFor(
    { splitTraffic = true }: ServicePortPortals,
    portal: PortalSpec,
    family: Family,
  ): Needed {
    const address = this.#bindAddresses[family] ?? '';
    const { protocol, port, clusterClients } = portal;
    const traffic = splitTraffic ? portal.traffic : 'internal';
    const more = splitTraffic && clusterClients !== undefined ? { clusterClients } : undefined;
    if (!this.#transparent) return { address, traffic, ...more };
    if (protocol === 'TCP') {
      // They share a socket, so none takes a port of the range.
      return {
        address,
        port: 0,
        traffic,
        transparent: [{ address: portal.address, port }],
        ...more,
      };
    }
    // Answers have to come from the address and port that the client has sent to.
    const own = portal.address ?? (family === 4 ? '0.0.0.0' : '::');
    return { address: own, port, traffic, transparent: [], ...more };
  }

  problems(): PortalProblem[] {
    const conflict = this.#claims.problem((portal) => [portal, portalName(portal)]);
    return [
      ...this.#faults.problems(),
      ...(conflict === undefined ? [] : [conflict]),
      ...this.#ports.problems(),
    ];
  }
}

/** The ports of a service port's listeners; undefined: not open. */
function portsOf({ listen = [], ports }: Entry): (listener: ProxyListener) => number | undefined {
  const indexOf = listenerIndex(listen);
  return (listener) => ports[indexOf(listener)];
}

/** The same for all portals of a service port. */
function protocolOf(wanted: ServicePortPortals | undefined): Protocol | undefined {
  return wanted?.portals[0]?.protocol;
}
