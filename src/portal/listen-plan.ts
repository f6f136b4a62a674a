import type { ListenSpec } from '../proxysocket/spec.ts';
import { isEqual, put } from '../util/compare.ts';
import { ClaimTable } from './claims.ts';
import {
  type BoundPorts,
  type PortalPlan,
  type PortalProblem,
  type PortalSpec,
  portalText,
  type ServicePortPortals,
} from './portal.ts';
import { type PortAllocator, reservationKey } from './proxy-ports.ts';

/** A listener of a service port: on a proxy port if it names no port. */
export type Listener = Omit<ListenSpec, 'port'> & { readonly port?: number };

interface Entry {
  readonly wanted: ServicePortPortals;
  /** As last planned. */
  listen: readonly ListenSpec[];
  /** Actual port of each of these; undefined, or no item: it is not open. */
  ports: readonly (number | undefined)[];
}

const NONE: readonly never[] = [];

/**
 * Common to all portals: who has each address, and where the engine listens for it. A listener keeps its proxy port. A
 * port that another program holds is replaced if possible.
 */
export abstract class ListenPlan {
  readonly #allocator: PortAllocator;
  readonly #entries = new Map<string, Entry>();
  readonly #claims = new ClaimTable();
  /** Service ports that lack a proxy port. */
  readonly #waiting = new Set<string>();
  /** Service ports whose proxy port has to be replaced. */
  readonly #moving = new Set<string>();
  /** The portals of service ports for which the host has no address, and their number. */
  readonly #unavailable = new Map<string, readonly PortalSpec[]>();
  #unavailableCount = 0;
  /** Released proxy ports: rules redirect to them until the plan is applied. */
  readonly #dropped: number[] = [];
  /** Service ports planned since `settle` was last called. */
  #touched = new Set<string>();

  constructor(allocator: PortAllocator) {
    this.#allocator = allocator;
  }

  /** Why the host has no address for a portal. */
  protected abstract readonly lack: string;

  /** Called for each service port that is set. It reports portals without an address, see `noteUnavailable`. */
  protected abstract claimsOf(wanted: ServicePortPortals): readonly PortalSpec[];

  /** The listeners for the claims that a service port holds. Equal ones are put together. */
  protected abstract listenersOf(
    wanted: ServicePortPortals,
    held: readonly PortalSpec[],
  ): Listener[];

  /** Whether a listener of `listenersOf` names no port. */
  protected abstract isOnProxyPort(listener: Listener): boolean;

  /** See `Portal.plan`. Released ports are reused at once only when no other is left. */
  plan(set: readonly ServicePortPortals[], remove: readonly string[]): PortalPlan {
    for (const name of remove) this.#forget(name);
    const claims = new Map(set.map((wanted) => [wanted.servicePort, this.#remember(wanted)]));
    const changed = this.#claims.update(claims, remove);
    const listen = new Map<string, readonly ListenSpec[]>();
    this.#planAll(new Set([...claims.keys(), ...changed, ...this.#moving]), listen);
    this.#moving.clear();
    const dropped = this.#dropped.splice(0);
    for (const port of dropped) this.#allocator.release(port);
    if (dropped.length > 0) this.#planAll(this.#waiting, listen);
    return listen;
  }

  wanted(name: string): ServicePortPortals | undefined {
    return this.#entries.get(name)?.wanted;
  }

  listen(name: string): readonly ListenSpec[] {
    return this.#entries.get(name)?.listen ?? NONE;
  }

  /** At most one conflict, one lack of ports, and one lack of addresses, each with their number. */
  problems(): PortalProblem[] {
    const conflict = this.#claims.problem();
    const problems = conflict === undefined ? [] : [conflict];
    const [waiting] = this.#waiting;
    const { range } = this.#allocator;
    if (waiting !== undefined && range !== undefined) {
      const why = `all of ${range.first}-${range.last} are taken; make --port-range larger, or leave it out`;
      const message = `${waiting} has no proxy port: ${why}`;
      const code = 'KPNG_PORT_RANGE_EXHAUSTED';
      problems.push({ servicePort: waiting, code, message, count: this.#waiting.size });
    }
    const [[servicePort, [portal]] = ['', []]] = this.#unavailable;
    if (portal !== undefined) {
      const code = 'KPNG_LISTEN_ADDRESS_NOT_AVAILABLE';
      const message = `${servicePort} cannot have ${portalText(portal)}: ${this.lack}`;
      problems.push({ servicePort, code, message, count: this.#unavailableCount });
    }
    return problems;
  }

  /** Replaces the portals of a service port for which the host has no address. */
  protected noteUnavailable(name: string, portals: readonly PortalSpec[]): void {
    this.#unavailableCount += portals.length - (this.#unavailable.get(name)?.length ?? 0);
    put(this.#unavailable, name, portals.length > 0 ? portals : undefined);
  }

  get choosesPorts(): boolean {
    return this.#allocator.range !== undefined;
  }

  portTaken(name: string, listen: ListenSpec): boolean {
    const entry = this.#entries.get(name);
    const index = listenerIndex(entry?.listen ?? NONE)(listen);
    if (entry === undefined || index === -1) return false;
    if (!this.isOnProxyPort(listen) || !this.#allocator.hasOther) return false;
    this.#allocator.reject(listen.port);
    entry.listen = entry.listen.toSpliced(index, 1);
    entry.ports = entry.ports.toSpliced(index, 1);
    this.#moving.add(name);
    return true;
  }

  isPartlyOpen(name: string): boolean {
    const { listen = NONE, ports = NONE } = this.#entries.get(name) ?? {};
    return ports.length < listen.length || ports.includes(undefined);
  }

  /** Records the ports that listeners got. Returns the service ports that were planned since the last call. */
  settle(bound: Iterable<BoundPorts>): ReadonlySet<string> {
    for (const [name, list] of bound) {
      const entry = this.#entries.get(name);
      if (entry === undefined) continue;
      const indexOf = listenerIndex(list.map(({ listen }) => listen));
      entry.ports = entry.listen.map((spec) => list[indexOf(spec)]?.boundPort);
      this.#touched.add(name);
    }
    const touched = this.#touched;
    this.#touched = new Set();
    return touched;
  }

  protected get names(): Iterable<string> {
    return this.#entries.keys();
  }

  protected held(name: string): readonly PortalSpec[] {
    return this.#claims.held(name);
  }

  /** Finds the port of a listener of `listenersOf`; undefined: it is not open. */
  protected portsOf(name: string): (listener: Listener) => number | undefined {
    const ports = this.#entries.get(name)?.ports;
    const indexOf = listenerIndex(this.listen(name));
    return (listener) => ports?.[indexOf(listener)];
  }

  #forget(name: string): void {
    for (const spec of this.listen(name)) this.#drop(spec);
    this.#entries.delete(name);
    this.#waiting.delete(name);
    this.noteUnavailable(name, []);
    this.#touched.add(name);
  }

  #remember(wanted: ServicePortPortals): readonly PortalSpec[] {
    const { servicePort: name } = wanted;
    const protocol = protocolOf(wanted);
    const previous = this.wanted(name);
    // With another protocol it is another service port: the engine opens its listeners again.
    if (previous && protocol !== undefined && protocolOf(previous) !== protocol) this.#forget(name);
    const { listen = NONE, ports = NONE } = this.#entries.get(name) ?? {};
    this.#entries.set(name, { wanted, listen, ports });
    return this.claimsOf(wanted);
  }

  /** `changed` gets the service ports whose listeners differ. */
  #planAll(names: ReadonlySet<string>, changed: Map<string, readonly ListenSpec[]>): void {
    // Where the kernel chooses, the order does not matter.
    for (const name of this.choosesPorts ? [...names].sort() : names) {
      const entry = this.#entries.get(name);
      if (entry !== undefined && this.#planOne(name, entry)) changed.set(name, entry.listen);
    }
  }

  /** Releases ports that are no longer needed, and allocates missing ones. Returns whether the listeners differ. */
  #planOne(name: string, entry: Entry): boolean {
    this.#touched.add(name);
    const needed = withoutDuplicates(this.listenersOf(entry.wanted, this.#claims.held(name)));
    const isNeeded = listenerIndex(needed);
    for (const spec of entry.listen) if (isNeeded(spec) === -1) this.#drop(spec);
    const indexOf = listenerIndex(entry.listen);
    const now = needed.flatMap((listener): ListenSpec[] => {
      const { address, traffic, port: own } = listener;
      const known = own ?? entry.listen[indexOf(listener)]?.port;
      const port = known ?? this.#allocator.allocate(reservationKey(name, address, traffic));
      return port === undefined ? [] : [{ ...listener, port }];
    });
    if (now.length < needed.length) this.#waiting.add(name);
    else this.#waiting.delete(name);
    if (isEqual(now, entry.listen)) return false;
    entry.ports = entry.ports.length === 0 ? NONE : now.map(this.portsOf(name));
    // A copy has no spare capacity.
    entry.listen = [...now];
    return true;
  }

  #drop(spec: ListenSpec): void {
    if (this.isOnProxyPort(spec)) this.#dropped.push(spec.port);
  }
}

/** The same for all portals of a service port. */
export function protocolOf(wanted: ServicePortPortals): PortalSpec['protocol'] | undefined {
  return wanted.portals[0]?.protocol;
}

type Place = Pick<Listener, 'address' | 'traffic' | 'port'>;

/** One for all that are equal, with the transparent addresses of all. */
function withoutDuplicates(listeners: readonly Listener[]): readonly Listener[] {
  if (listeners.length < 2) return listeners;
  return [...Map.groupBy(listeners, keyOf).values()].flatMap((same): Listener[] => {
    const [first] = same;
    if (same.length === 1 || first?.transparent === undefined) return same.slice(0, 1);
    return [{ ...first, transparent: same.flatMap(({ transparent = [] }) => transparent) }];
  });
}

/** Listeners of a service port that are searched one by one; others may be thousands. */
const FEW = 16;

/**
 * Finds the index of the listener of an address and kind of traffic, and of a port if both name one; -1: there is
 * none.
 */
export function listenerIndex(listeners: readonly Place[]): (of: Place) => number {
  const isSame = (one: Place, other: Place): boolean =>
    one.address === other.address &&
    one.traffic === other.traffic &&
    (one.port ?? other.port) === (other.port ?? one.port);
  if (listeners.length <= FEW) return (of) => listeners.findIndex((each) => isSame(each, of));
  const byPlace = Map.groupBy(listeners.entries(), ([, { address, traffic }]) => address + traffic);
  return (of) => {
    const some = byPlace.get(of.address + of.traffic) ?? [];
    return some.find(([, each]) => isSame(each, of))?.[0] ?? -1;
  };
}

function keyOf({ address, traffic, port }: Place): string {
  return `${address} ${traffic} ${port ?? ''}`;
}
