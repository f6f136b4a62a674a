import type {
  BoundPorts,
  Portal,
  PortalPlan,
  Served,
  ServicePortPortals,
} from '../portal/portal.ts';
import type { Engine } from '../proxysocket/engine.ts';
import { isSharedSockets } from '../proxysocket/core/shared-service-ports.ts';
import type { EndpointSpec, ListenSpec } from '../proxysocket/spec.ts';
import { isEqual } from '../util/compare.ts';
import { isAmong } from './engine-sync.ts';
import type { DesiredServicePort } from './wanted.ts';

/** What determines how a portal treats clients without endpoints. */
export interface PortalPolicy {
  /** Whether the portal redirects clients to proxy ports, and so can reject them. */
  readonly redirects: boolean;
  /** Whether the engine holds TCP clients until there is an endpoint. */
  readonly holds: boolean;
  /** Networks (CIDR) of pods, whose traffic to external addresses no policy restricts. */
  readonly podNetworks: readonly string[];
}

/** A portal only learns whether there are endpoints, and only if it redirects and clients are not held. */
export function portalInput(
  { spec, portals: all, splitTraffic, clusterTraffic }: DesiredServicePort,
  { redirects, holds, podNetworks }: PortalPolicy,
): ServicePortPortals {
  const clusterClients = clusterTraffic && { networks: podNetworks, traffic: clusterTraffic };
  const portals =
    clusterClients === undefined
      ? all
      : all.map((each) => (each.traffic === 'external' ? { ...each, clusterClients } : each));
  const servicePort = spec.name;
  if (!redirects) return { servicePort, portals, served: ALL_SERVED, splitTraffic: true };
  const isHeld = holds && spec.protocol === 'TCP';
  const served = isHeld ? ALL_SERVED : servedBy(spec.endpoints);
  return { servicePort, portals, served, splitTraffic };
}

/** All combinations: very many service ports share these objects. */
const SERVED = Array.from({ length: 8 }, (_, bits) => ({
  internal: (bits & 1) > 0,
  external: (bits & 2) > 0,
  cluster: (bits & 4) > 0,
}));
const ALL_SERVED = { internal: true, external: true, cluster: true };

function servedBy(endpoints: readonly EndpointSpec[]): Required<Served> {
  let bits = 0;
  for (const { internal, external, cluster } of endpoints) {
    bits |= (internal ? 1 : 0) | (external ? 2 : 0) | (cluster === true ? 4 : 0);
  }
  return SERVED[bits] ?? ALL_SERVED;
}

/** The state of one service port at the portal, and its listeners in the engine. */
interface Planned {
  readonly input: ServicePortPortals;
  listen: readonly ListenSpec[];
}

const NOWHERE: readonly ListenSpec[] = [];

/** Service ports whose states are read at once: they are large. */
const READ_AT_ONCE = 100;

/** Keeps a portal in step with the desired state. Updates only service ports whose input differs. */
export class PortalSync {
  readonly #portal: Portal;
  readonly #engine: Engine;
  readonly #wanted: (name: string) => ServicePortPortals | undefined;
  readonly #planned = new Map<string, Planned>();
  /**
   * Planned service ports not committed yet; undefined: none. Initially defined, since stale rules have to be
   * removed.
   */
  #uncommitted: Set<string> | undefined = new Set();
  /** Service ports with a listener that was not open at their last commit. */
  readonly #missing = new Set<string>();
  /** Those whose listeners have opened since. */
  readonly #late = new Set<string>();

  /** `wanted`: the desired portals of a service port; undefined: none. */
  constructor(
    portal: Portal,
    engine: Engine,
    wanted: (name: string) => ServicePortPortals | undefined,
  ) {
    this.#portal = portal;
    this.#engine = engine;
    this.#wanted = wanted;
  }

  /** Where a service port listens, as last planned. */
  listen(name: string): readonly ListenSpec[] {
    return this.#planned.get(name)?.listen ?? NOWHERE;
  }

  /** Plans the changes of these service ports; undefined if nothing differs and everything is committed. */
  plan(names: Iterable<string>): PortalPlan | undefined {
    const set: ServicePortPortals[] = [];
    const remove: string[] = [];
    for (const name of names) {
      const input = this.#wanted(name);
      if (isEqual(input, this.#planned.get(name)?.input)) continue;
      if (input === undefined) remove.push(name);
      else set.push(input);
    }
    if (set.length === 0 && remove.length === 0 && this.#uncommitted === undefined)
      return undefined;
    const plan = this.#portal.plan(set, remove);
    for (const name of remove) {
      this.#planned.delete(name);
      this.#missing.delete(name);
    }
    for (const input of set) {
      const { servicePort } = input;
      this.#planned.set(servicePort, { input, listen: this.listen(servicePort) });
    }
    this.#note(plan);
    return plan;
  }

  /** Plans other ports for listeners whose ports are held by other programs; undefined: none, or no other ports. */
  replan(): PortalPlan | undefined {
    if (this.#portal.portTaken === undefined) return undefined;
    const names = [...(this.#uncommitted ?? [])].filter((name) =>
      this.listen(name).some(({ port }) => port !== 0),
    );
    if (names.length === 0) return undefined;
    let taken = 0;
    for (const { name, listeners } of this.#engine.snapshot(new Set(names))) {
      const isPlanned = isAmong(this.listen(name));
      for (const each of listeners) {
        if (each.state !== 'failed' || each.code !== 'KPNG_LISTEN_ADDRESS_IN_USE') continue;
        if (!isPlanned(each.listen)) continue;
        this.#portal.portTaken(name, each.listen);
        taken += 1;
      }
    }
    if (taken === 0) return undefined;
    const plan = this.#portal.plan([], []);
    this.#note(plan);
    return plan.size === 0 ? undefined : plan;
  }

  #note(plan: PortalPlan): void {
    this.#uncommitted ??= new Set();
    for (const [name, listen] of plan) {
      const planned = this.#planned.get(name);
      if (planned === undefined) continue;
      planned.listen = listen;
      this.#uncommitted.add(name);
    }
  }

  /**
   * Commits the plans with the ports that the engine has opened. Rejects with the portal's error; the commit stays
   * due then.
   */
  async commit(): Promise<void> {
    const names = this.#uncommitted;
    if (names === undefined) return;
    await this.#portal.commit(this.#boundPorts(names));
    this.#uncommitted = undefined;
  }

  /**
   * Notes that a listener has opened. Returns whether `commitLate` has to be called: the listener was missing at the last
   * commit, and no earlier one waits for the call.
   */
  noteOpened(name: string): boolean {
    const isLate = isSharedSockets(name) ? this.#missing.size > 0 : this.#missing.has(name);
    if (!isLate) return false;
    this.#late.add(name);
    return this.#late.size === 1;
  }

  /** Commits the ports of listeners that have opened since their commit. Rejects as `commit` does. */
  async commitLate(): Promise<void> {
    this.#uncommitted ??= new Set();
    for (const name of this.#late) {
      for (const each of isSharedSockets(name) ? this.#missing : [name])
        this.#uncommitted.add(each);
    }
    this.#late.clear();
    await this.commit();
  }

  /**
   * Ports of planned listeners, and which are missing; a service port may have others that are about to close. Read part
   * by part, as there may be very many.
   */
  *#boundPorts(names: ReadonlySet<string>): Generator<BoundPorts> {
    const all = [...names];
    for (let start = 0; start < all.length; start += READ_AT_ONCE) {
      const some = new Set(all.slice(start, start + READ_AT_ONCE));
      const found = new Map(this.#engine.snapshot(some).map((each) => [each.name, each.listeners]));
      for (const name of some) {
        const listeners = found.get(name);
        const planned = this.listen(name);
        const isPlanned = isAmong(planned);
        const open = (listeners ?? []).flatMap((each) =>
          each.state === 'listening' && isPlanned(each.listen)
            ? [{ listen: each.listen, boundPort: each.boundPort }]
            : [],
        );
        if (open.length < planned.length) this.#missing.add(name);
        else this.#missing.delete(name);
        if (listeners !== undefined) yield [name, open];
      }
    }
  }
}
