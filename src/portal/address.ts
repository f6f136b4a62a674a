import { hostAddresses, type HostAddress } from '../util/host-addresses.ts';
import { isLoopback } from '../util/host-port.ts';
import type { AddressKeeper } from './interface/keeper.ts';
import { type Listener, ListenPlan } from './listen-plan.ts';
import { nodePortAddresses } from './node-addresses.ts';
import {
  type BoundPorts,
  type Portal,
  type PortalPlan,
  type PortalProblem,
  type PortalSpec,
  type ServicePortPortals,
} from './portal.ts';
import { PortAllocator } from './proxy-ports.ts';

export interface AddressPortalOptions {
  /** Addresses that node ports open on: networks, addresses, `primary`, `localhost`, `all`. Empty (default): all. */
  readonly nodePortAddresses?: readonly string[];
  /** The host's addresses now; by default as Node or the keeper reports them. */
  readonly interfaces?: () => readonly HostAddress[];
  /** Puts the service addresses on an interface. Without it, only addresses that the host has work. */
  readonly keeper?: AddressKeeper;
}

/**
 * Lets the engine listen on the service addresses themselves. A keeper, if there is one, adds addresses that the host
 * lacks.
 *
 * Node ports listen on the wildcard address by default, which conflicts with every single address with that port.
 */
export class AddressPortal extends ListenPlan implements Portal {
  readonly kind: Portal['kind'] = 'address';
  /** Where proxy ports are, if there are any. */
  protected readonly proxyAddress: string | undefined;
  readonly #nodePortAddresses: readonly string[];
  readonly #interfaces: () => readonly HostAddress[];
  readonly #keeper: AddressKeeper | undefined;
  protected readonly lack: string;
  #nodeAddresses: readonly string[];

  /** `allocator`: of proxy ports, if there are any. Throws a RangeError for an invalid item of `nodePortAddresses`. */
  constructor(
    options: AddressPortalOptions = {},
    allocator = new PortAllocator(undefined, Math.random),
  ) {
    super(allocator);
    const { keeper } = options;
    this.#keeper = keeper;
    this.#nodePortAddresses = options.nodePortAddresses ?? [];
    this.lack = `the host has no address in --nodeport-addresses ${this.#nodePortAddresses.join(',')}`;
    this.#interfaces =
      options.interfaces ?? (keeper === undefined ? hostAddresses : () => keeper.hostAddresses());
    this.#nodeAddresses = nodePortAddresses(this.#nodePortAddresses, this.#interfaces());
  }

  override plan(set: readonly ServicePortPortals[], remove: readonly string[]): PortalPlan {
    const affected = this.#affectedByHost();
    for (const name of remove) this.#keeper?.want(name, []);
    if (affected.length === 0) return super.plan(set, remove);
    const named = new Set([...remove, ...set.map(({ servicePort }) => servicePort)]);
    const others = affected.filter(({ servicePort }) => !named.has(servicePort));
    return super.plan([...set, ...others], remove);
  }

  override problems(): PortalProblem[] {
    return [...super.problems(), ...(this.#keeper?.problems ?? [])];
  }

  async prepare(): Promise<void> {
    await this.#keeper?.prepare();
  }

  /** Removes the addresses that no service port needs any more. Rejects with KPNG_PORTAL_*. */
  async commit(bound: Iterable<BoundPorts> = []): Promise<void> {
    this.settle(bound);
    await this.#keeper?.commit();
  }

  hostAddresses(): readonly HostAddress[] {
    return this.#interfaces();
  }

  /** Call it once all listeners are closed. Rejects with KPNG_PORTAL_* if addresses cannot be removed. */
  async close(removes?: boolean): Promise<void> {
    // The sockets belong to the engine.
    await this.#keeper?.close(removes);
  }

  protected claimsOf({ servicePort: name, portals }: ServicePortPortals): readonly PortalSpec[] {
    // The host has loopback addresses anyway.
    const own = portals.flatMap(({ address = '::1' }) => (isLoopback(address) ? [] : address));
    this.#keeper?.want(name, own);
    const isAvailable = this.#nodeAddresses.length > 0;
    this.noteUnavailable(name, isAvailable ? [] : portals.filter(isNodePort));
    // Not a copy, as there may be very many service ports.
    if (!portals.some(isNodePort)) return portals;
    return portals.flatMap((portal) =>
      isNodePort(portal) ? this.#nodeAddresses.map((address) => ({ ...portal, address })) : portal,
    );
  }

  protected listenersOf(_: ServicePortPortals, held: readonly PortalSpec[]): Listener[] {
    return held.map(({ address = '', port, traffic, sourceRanges, clusterClients }) => {
      const ranges = sourceRanges.length > 0 && { sourceRanges };
      return { address, port, traffic, ...ranges, ...(clusterClients && { clusterClients }) };
    });
  }

  protected isOnProxyPort({ address }: Listener): boolean {
    return address === this.proxyAddress;
  }

  /** Service ports with node ports, if a relevant address of the host has changed. */
  #affectedByHost(): ServicePortPortals[] {
    const now = nodePortAddresses(this.#nodePortAddresses, this.#interfaces());
    if (now.join() === this.#nodeAddresses.join()) return [];
    this.#nodeAddresses = now;
    const all = [...this.names].flatMap((name) => this.wanted(name) ?? []);
    return all.filter(({ portals }) => portals.some(isNodePort));
  }
}

function isNodePort({ address }: PortalSpec): boolean {
  return address === undefined;
}

/**
 * No portals: each service port listens on one stable proxy port, and the operator redirects traffic there.
 *
 * All traffic counts as internal and source ranges do not apply, as the redirect may hide the client's address.
 */
export class NonePortal extends AddressPortal {
  override readonly kind = 'none';
  protected override readonly proxyAddress: string;

  /** `proxyAddress`: IP literal of the proxy ports. */
  constructor(allocator: PortAllocator, proxyAddress: string) {
    super({}, allocator);
    this.proxyAddress = proxyAddress;
  }

  protected override claimsOf(): never[] {
    return [];
  }

  protected override listenersOf(): Listener[] {
    return [{ address: this.proxyAddress, traffic: 'internal' }];
  }
}
