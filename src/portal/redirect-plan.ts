import { isIP } from 'node:net';
import type { ListenSpec, Protocol } from '../proxysocket/spec.ts';
import { type Family, familyOf } from '../util/family.ts';
import { type Claim, ClaimTable } from './claims.ts';
import { type PortAllocator, type ProxyListener, ProxyPorts } from './proxy-ports.ts';
import {
  type PortalPlan,
  type PortalProblem,
  type PortalSpec,
  portalText,
  sameListen,
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

interface FaultCount {
  readonly first: Fault;
  count: number;
}

/** The faults of all service ports, counted incrementally: there may be hundreds of thousands. */
export class FaultCounts {
  /** By code and service port. */
  readonly #byCode = new Map<
    string,
    { count: number; readonly byServicePort: Map<string, FaultCount> }
  >();

  /** Replaces the faults of a service port. */
  set(name: string, faults: readonly Fault[]): void {
    for (const group of this.#byCode.values()) {
      group.count -= group.byServicePort.get(name)?.count ?? 0;
      group.byServicePort.delete(name);
    }
    for (const first of faults) {
      const [code] = first.why;
      const group = this.#byCode.get(code) ?? {
        count: 0,
        byServicePort: new Map<string, FaultCount>(),
      };
      this.#byCode.set(code, group);
      const mine = group.byServicePort.get(name) ?? { first, count: 0 };
      group.byServicePort.set(name, mine);
      mine.count += 1;
      group.count += 1;
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

/** Node ports are claimed under a separate name, so that they conflict with no address. */
interface RedirectClaim extends Claim {
  readonly families: readonly Family[];
}

interface Entry {
  readonly wanted: ServicePortPortals;
  /** Actual ports of open listeners, by `listenerKey`. */
  bound: Map<string, { readonly family: Family; readonly port: number }>;
  /** As last planned; undefined: always reported. */
  listen: readonly ListenSpec[] | undefined;
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
  readonly #entries = new Map<string, Entry>();
  readonly #claims = new ClaimTable<RedirectClaim>();
  readonly #faults = new FaultCounts();
  /** Service ports whose redirects may differ since `settle` was last called. */
  #touched = new Set<string>();

  constructor({ allocator, bindAddresses, transparent = false }: RedirectPlanOptions) {
    this.#ports = new ProxyPorts(allocator);
    this.#bindAddresses = bindAddresses;
    this.#transparent = transparent;
  }

  /** See `Portal.plan`. */
  plan(set: readonly ServicePortPortals[], remove: readonly string[]): PortalPlan {
    for (const name of remove) this.#forget(name);
    const claims = new Map(set.map((wanted) => [wanted.servicePort, this.#remember(wanted)]));
    const changed = this.#claims.update(claims, remove);
    const affected = new Set([...claims.keys(), ...changed, ...remove]);
    const needed = new Map([...affected].map((name) => [name, this.#needed(name)]));
    for (const name of this.#ports.update(needed)) affected.add(name);
    const listen = new Map<string, readonly ListenSpec[]>();
    for (const name of affected) {
      this.#touched.add(name);
      const entry = this.#entries.get(name);
      if (entry === undefined) continue;
      const now = this.#ports.listen(name);
      if (entry.listen !== undefined && sameListen(now, entry.listen)) continue;
      const keys = new Set(now.map((spec) => listenerKey(spec)));
      for (const key of entry.bound.keys()) if (!keys.has(key)) entry.bound.delete(key);
      entry.listen = now;
      listen.set(name, now);
    }
    return { listen, problems: this.problems() };
  }

  /** See `Portal.portTaken`. */
  portTaken(name: string, listen: ListenSpec): void {
    this.#ports.portTaken(name, listen);
  }

  /**
   * Records the ports that listeners got. Returns the service ports whose redirects may differ since the last call.
   */
  settle(
    bound: ReadonlyMap<string, readonly { listen: ListenSpec; boundPort: number }[]>,
  ): ReadonlySet<string> {
    for (const [name, list] of bound) {
      const entry = this.#entries.get(name);
      if (entry === undefined) continue;
      entry.bound = new Map(
        list.map(({ listen, boundPort }) => [
          listenerKey(listen),
          { family: familyOf(listen.address), port: boundPort },
        ]),
      );
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
    const { wanted, bound } = entry;
    return this.#claims.held(name).flatMap(({ portal, families }) =>
      families.map((family): Redirect => {
        const { served } = wanted;
        const isServed = served?.[portal.traffic] ?? true;
        const clusterTraffic = portal.clusterClients?.traffic ?? portal.traffic;
        const isEntered = isServed || served?.[clusterTraffic] === true;
        const listener = isEntered ? this.#listenerFor(wanted, portal, family) : undefined;
        const proxyPort = listener && bound.get(listenerKey(listener))?.port;
        const drops = !isServed && Object.values(served ?? {}).includes(true);
        return { family, portal, proxyPort, ...(drops && { drops }) };
      }),
    );
  }

  /** The proxy ports of a service port. */
  proxyPorts(name: string): ProxyPort[] {
    const { wanted, bound } = this.#entries.get(name) ?? {};
    const protocol = protocolOf(wanted);
    if (bound === undefined || protocol === undefined) return [];
    return [...bound.values()].map(({ family, port }) => ({ family, protocol, port }));
  }

  #forget(name: string): void {
    this.#entries.delete(name);
    this.#faults.set(name, []);
  }

  /** Records the portals of a service port, and returns its claims. */
  #remember(wanted: ServicePortPortals): RedirectClaim[] {
    const name = wanted.servicePort;
    const claims: RedirectClaim[] = [];
    const faults: Fault[] = [];
    for (const portal of wanted.portals) {
      const families = this.#familiesOf(portal);
      const why = faultOf(portal, families);
      if (why !== undefined) faults.push({ portal, why });
      else claims.push({ portal, families, address: portal.address ?? 'node', port: portal.port });
    }
    const previous = this.#entries.get(name);
    // With another protocol the engine opens new listeners, even though they look the same here.
    const isSame = previous !== undefined && protocolOf(previous.wanted) === protocolOf(wanted);
    const listen = previous === undefined ? [] : undefined;
    const entry = isSame ? previous : { bound: new Map(), listen };
    this.#entries.set(name, { ...entry, wanted });
    this.#faults.set(name, faults);
    return claims;
  }

  #familiesOf({ address }: PortalSpec): Family[] {
    const families: Family[] = address === undefined ? [4, 6] : [familyOf(address)];
    return families.filter((family) => this.#bindAddresses[family] !== undefined);
  }

  /** One for each family and kind of traffic of the service port's portals. */
  #needed(name: string): ProxyListener[] {
    const wanted = this.#entries.get(name)?.wanted;
    if (wanted === undefined) return [];
    const needed = new Map<string, ProxyListener>();
    for (const { portal, families } of this.#claims.held(name)) {
      for (const family of families) {
        const listener = this.#listenerFor(wanted, portal, family);
        if (listener === undefined) continue;
        const key = listenerKey(listener);
        const transparent = needed.get(key)?.transparent ?? [];
        needed.set(
          key,
          listener.transparent === undefined
            ? listener
            : { ...listener, transparent: [...transparent, ...listener.transparent] },
        );
      }
    }
    return [...needed].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, listener]) => listener);
  }

  #listenerFor(
    { splitTraffic = true }: ServicePortPortals,
    portal: PortalSpec,
    family: Family,
  ): ProxyListener | undefined {
    const address = this.#bindAddresses[family];
    if (address === undefined) return undefined;
    const { protocol, port, clusterClients } = portal;
    const traffic = splitTraffic ? portal.traffic : 'internal';
    const more = splitTraffic && clusterClients !== undefined ? { clusterClients } : {};
    if (!this.#transparent) return { protocol, address, traffic, ...more };
    if (protocol === 'TCP') {
      const transparent = [{ address: portal.address, port }];
      // They share a socket, so none takes a port of the range.
      return { protocol, address, traffic, port: 0, transparent, ...more };
    }
    // Answers have to come from the address and port that the client has sent to.
    const own = portal.address ?? (family === 4 ? '0.0.0.0' : '::');
    return { protocol, address: own, traffic, port, transparent: [], ...more };
  }

  /** See `Portal.problems`. */
  problems(): PortalProblem[] {
    const conflict = this.#claims.problem(({ portal }) => portalName(portal));
    return [
      ...this.#faults.problems(),
      ...(conflict === undefined ? [] : [conflict]),
      ...this.#ports.problems(),
    ];
  }
}

/** The same for all portals of a service port. */
function protocolOf(wanted: ServicePortPortals | undefined): Protocol | undefined {
  return wanted?.portals[0]?.protocol;
}

function listenerKey({ address, traffic }: Pick<ListenSpec, 'address' | 'traffic'>): string {
  return `${address} ${traffic}`;
}
