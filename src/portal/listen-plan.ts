import { isDeepStrictEqual } from 'node:util';
import type { ListenSpec } from '../proxysocket/spec.ts';
import { type Claim, ClaimTable } from './claims.ts';
import type {
  BoundPorts,
  PortalPlan,
  PortalProblem,
  PortalSpec,
  ServicePortPortals,
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
  /** The engine opens new listeners, even if they look the same here. */
  isReopened: boolean;
}

interface Step {
  readonly entry: Entry;
  readonly needed: readonly Listener[];
  readonly kept: readonly ListenSpec[];
}

const NONE: readonly never[] = [];

/**
 * Common to all portals: who has each address, and where the engine listens for it. A listener keeps its proxy port. A
 * port that another program holds is replaced if possible.
 *
 * `C`: what a service port has to have for itself.
 */
export abstract class ListenPlan<C extends Claim> {
  readonly #allocator: PortAllocator;
  readonly #entries = new Map<string, Entry>();
  readonly #claims = new ClaimTable<C>();
  /** Service ports that lack a proxy port. */
  readonly #waiting = new Set<string>();
  /** Proxy ports of service ports that another program holds. */
  readonly #foreign = new Map<string, Set<number>>();
  /** Released proxy ports: rules redirect to them until the plan is applied. */
  readonly #dropped: number[] = [];
  /** Service ports planned since `settle` was last called. */
  #touched = new Set<string>();

  constructor(allocator: PortAllocator) {
    this.#allocator = allocator;
  }

  /** Called for each service port that is set. */
  protected abstract claimsOf(wanted: ServicePortPortals): readonly C[];

  /** The listeners for the claims that a service port holds. Equal ones are put together. */
  protected abstract listenersOf(wanted: ServicePortPortals, held: readonly C[]): Listener[];

  /** Whether a listener of `listenersOf` names no port. */
  protected abstract isOnProxyPort(listener: Listener): boolean;

  /** See `Portal.plan`. Released ports are reused at once only when no other is left. */
  plan(set: readonly ServicePortPortals[], remove: readonly string[]): PortalPlan {
    for (const name of remove) this.#forget(name);
    const claims = new Map(set.map((wanted) => [wanted.servicePort, this.#remember(wanted)]));
    const changed = this.#claims.update(claims, remove);
    const steps = new Map<string, Step>();
    for (const names of [claims.keys(), changed, this.#foreign.keys()]) {
      for (const name of names) this.#begin(name, steps);
    }
    if (this.#dropped.length > 0 || !this.#allocator.isExhausted) {
      for (const name of this.#waiting) this.#begin(name, steps);
    }
    // Where the kernel chooses, the order does not matter.
    const names = this.#allocator.hasRange ? [...steps.keys()].sort() : steps.keys();
    const listen = new Map<string, readonly ListenSpec[]>();
    for (const name of names) {
      const step = steps.get(name);
      if (step !== undefined && this.#end(name, step)) listen.set(name, step.entry.listen);
    }
    this.#releaseDropped();
    return listen;
  }

  /** At most one conflict, and one lack of ports, each with their number. */
  problems(): PortalProblem[] {
    const conflict = this.#claims.problem();
    const [waiting] = this.#waiting;
    return [
      ...(conflict === undefined ? [] : [conflict]),
      ...(waiting === undefined
        ? []
        : [{ ...this.#allocator.exhausted(waiting), count: this.#waiting.size }]),
    ];
  }

  /** The `Portal.portTaken` of portals that choose ports. */
  protected replacePort(name: string, listen: ListenSpec): void {
    if (!this.isOnProxyPort(listen)) return;
    const ports = this.#foreign.get(name);
    if (ports === undefined) this.#foreign.set(name, new Set([listen.port]));
    else ports.add(listen.port);
  }

  /** Records the ports that listeners got. Returns the service ports that were planned since the last call. */
  settle(bound: Iterable<BoundPorts>): ReadonlySet<string> {
    for (const [name, list] of bound) {
      const entry = this.#entries.get(name);
      if (entry === undefined) continue;
      const indexOf = listenerIndex(list.map(({ listen }) => listen));
      entry.ports = entry.listen.map((spec) => list[indexOf(spec)]?.boundPort);
      for (const { boundPort } of list) this.#foreign.get(name)?.delete(boundPort);
      this.#touched.add(name);
    }
    const touched = this.#touched;
    this.#touched = new Set();
    return touched;
  }

  protected get names(): Iterable<string> {
    return this.#entries.keys();
  }

  protected wanted(name: string): ServicePortPortals | undefined {
    return this.#entries.get(name)?.wanted;
  }

  protected held(name: string): readonly C[] {
    return this.#claims.held(name);
  }

  /** The listeners of a service port, and the port of each; undefined: it is not open. */
  protected bound(name: string): [ListenSpec, port: number | undefined][] {
    const { listen = NONE, ports = NONE } = this.#entries.get(name) ?? {};
    return listen.map((spec, index) => [spec, ports[index]]);
  }

  /** Finds the port of a listener of `listenersOf`; undefined: it is not open. */
  protected portsOf(name: string): (listener: Listener) => number | undefined {
    const { listen = NONE, ports = NONE } = this.#entries.get(name) ?? {};
    const indexOf = listenerIndex(listen);
    return (listener) => ports[indexOf(listener)];
  }

  #forget(name: string): void {
    for (const spec of this.#entries.get(name)?.listen ?? NONE) this.#drop(spec);
    this.#entries.delete(name);
    this.#waiting.delete(name);
    this.#foreign.delete(name);
    this.#touched.add(name);
  }

  #remember(wanted: ServicePortPortals): readonly C[] {
    const previous = this.#entries.get(wanted.servicePort);
    const { listen = NONE, ports = NONE } = previous ?? {};
    const isReopened = previous !== undefined && protocolOf(previous.wanted) !== protocolOf(wanted);
    this.#entries.set(wanted.servicePort, {
      wanted,
      listen,
      ports: isReopened ? NONE : ports,
      isReopened,
    });
    return this.claimsOf(wanted);
  }

  /** Releases the ports that a service port no longer needs, or cannot use. */
  #begin(name: string, steps: Map<string, Step>): void {
    const entry = this.#entries.get(name);
    if (entry === undefined || steps.has(name)) return;
    const needed = withoutDuplicates(this.listenersOf(entry.wanted, this.#claims.held(name)));
    const indexOf = listenerIndex(needed);
    const foreign = this.#foreign.get(name);
    const kept = entry.listen.filter((spec) => {
      const isForeign = foreign?.has(spec.port) === true && this.#allocator.hasOther;
      if (!isForeign && indexOf(spec) !== -1) return true;
      if (isForeign) this.#allocator.reject(spec.port);
      else this.#drop(spec);
      foreign?.delete(spec.port);
      return false;
    });
    if (needed.length === 0 || foreign?.size === 0) this.#foreign.delete(name);
    steps.set(name, { entry, needed, kept });
    this.#touched.add(name);
  }

  /** Allocates the missing ports of a service port. Returns whether its listeners differ. */
  #end(name: string, { entry, needed, kept }: Step): boolean {
    const indexOf = listenerIndex(kept);
    const now = needed.flatMap((listener): ListenSpec[] => {
      const known = listener.port ?? kept[indexOf(listener)]?.port;
      const port = known ?? this.#allocate(name, listener);
      return port === undefined ? [] : [{ ...listener, port }];
    });
    if (now.length < needed.length) this.#waiting.add(name);
    else this.#waiting.delete(name);
    if (!entry.isReopened && isDeepStrictEqual(now, entry.listen)) return false;
    entry.ports = entry.ports.length === 0 ? NONE : now.map(this.portsOf(name));
    // A copy has no spare capacity.
    entry.listen = [...now];
    entry.isReopened = false;
    return true;
  }

  #allocate(name: string, { address, traffic }: Listener): number | undefined {
    const key = reservationKey(name, address, traffic);
    const port = this.#allocator.allocate(key);
    if (port !== undefined) return port;
    this.#releaseDropped();
    return this.#allocator.allocate(key);
  }

  #drop(spec: ListenSpec): void {
    if (this.isOnProxyPort(spec)) this.#dropped.push(spec.port);
  }

  #releaseDropped(): void {
    for (const port of this.#dropped) this.#allocator.release(port);
    this.#dropped.length = 0;
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
function listenerIndex(listeners: readonly Place[]): (of: Place) => number {
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
