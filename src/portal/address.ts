import type { ListenSpec } from '../proxysocket/spec.ts';
import { hostAddresses, type HostAddress } from '../util/host-addresses.ts';
import { isLoopback } from '../util/host-port.ts';
import type { Claim } from './claims.ts';
import type { AddressKeeper } from './interface/keeper.ts';
import { type Listener, ListenPlan } from './listen-plan.ts';
import { dependsOnHost, nodePortAddresses } from './node-addresses.ts';
import {
  type BoundPorts,
  type Portal,
  type PortalPlan,
  type PortalProblem,
  type PortalSpec,
  portalText,
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

export interface AddressClaim extends Claim {
  readonly address: string;
  readonly listen: ListenSpec;
}

/**
 * Lets the engine listen on the service addresses themselves. A keeper, if there is one, adds addresses that the host
 * lacks.
 *
 * Node ports listen on the wildcard address by default, which conflicts with every single address with that port.
 */
export class AddressPortal extends ListenPlan<AddressClaim> implements Portal {
  readonly kind: Portal['kind'] = 'address';
  /** Where proxy ports are, if there are any. */
  protected readonly proxyAddress: string | undefined;
  readonly #nodePortAddresses: readonly string[];
  readonly #interfaces: () => readonly HostAddress[];
  readonly #keeper: AddressKeeper | undefined;
  /** Service ports with node ports, whose addresses depend on those of the host. */
  readonly #withNodePorts = new Set<string>();
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
    this.#interfaces =
      options.interfaces ?? (keeper === undefined ? hostAddresses : () => keeper.hostAddresses());
    this.#nodeAddresses = nodePortAddresses(this.#nodePortAddresses, this.#interfaces());
  }

  override plan(set: readonly ServicePortPortals[], remove: readonly string[]): PortalPlan {
    const affected = this.#affectedByHost();
    for (const name of remove) {
      this.#keeper?.want(name, []);
      this.#withNodePorts.delete(name);
      affected.delete(name);
    }
    for (const { servicePort } of set) affected.delete(servicePort);
    const others = [...affected].flatMap((name) => this.wanted(name) ?? []);
    return super.plan([...set, ...others], remove);
  }

  override problems(): PortalProblem[] {
    return [
      ...super.problems(),
      ...this.#problemsWithoutAddress(),
      ...(this.#keeper?.problems ?? []),
    ];
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

  leave(): void {
    this.#keeper?.leave();
  }

  /** Call it once all listeners are closed. Rejects with KPNG_PORTAL_* if addresses cannot be removed. */
  async close(): Promise<void> {
    // The sockets belong to the engine.
    await this.#keeper?.close();
  }

  protected claimsOf({ servicePort: name, portals }: ServicePortPortals): AddressClaim[] {
    const own = portals.flatMap(({ address }) => address ?? []);
    if (own.length < portals.length) this.#withNodePorts.add(name);
    else this.#withNodePorts.delete(name);
    // The host has loopback addresses anyway.
    this.#keeper?.want(
      name,
      own.filter((address) => !isLoopback(address)),
    );
    return portals.flatMap((portal) => {
      const addresses = portal.address === undefined ? this.#nodeAddresses : [portal.address];
      return addresses.map((address) => claimOf(portal, address));
    });
  }

  protected listenersOf(_: ServicePortPortals, held: readonly AddressClaim[]): Listener[] {
    return held.map(({ listen }) => listen);
  }

  protected isOnProxyPort({ address }: Listener): boolean {
    return address === this.proxyAddress;
  }

  /** Service ports with node ports, if a relevant address of the host has changed. */
  #affectedByHost(): Set<string> {
    if (!dependsOnHost(this.#nodePortAddresses)) return new Set();
    const now = nodePortAddresses(this.#nodePortAddresses, this.#interfaces());
    if (now.join() === this.#nodeAddresses.join()) return new Set();
    this.#nodeAddresses = now;
    return new Set(this.#withNodePorts);
  }

  #problemsWithoutAddress(): PortalProblem[] {
    const [servicePort] = this.#withNodePorts;
    if (this.#nodeAddresses.length > 0 || servicePort === undefined) return [];
    const portal = this.wanted(servicePort)?.portals.find(({ address }) => address === undefined);
    const message =
      `${servicePort} cannot have ${portal && portalText(portal)}: the host has no address in ` +
      `--nodeport-addresses ${this.#nodePortAddresses.join(',')}`;
    const code = 'KPNG_LISTEN_ADDRESS_NOT_AVAILABLE';
    return [{ servicePort, code, message, count: this.#withNodePorts.size }];
  }
}

function claimOf(portal: PortalSpec, address: string): AddressClaim {
  const { protocol, port, traffic, sourceRanges, clusterClients } = portal;
  const filter = {
    ...(sourceRanges.length > 0 && { sourceRanges }),
    ...(clusterClients && { clusterClients }),
  };
  return { protocol, address, port, listen: { address, port, traffic, ...filter } };
}

export interface NonePortalOptions {
  /** IP literal of the proxy ports. Default `127.0.0.1`. */
  readonly bindAddress?: string;
  readonly allocator: PortAllocator;
}

/**
 * No portals: each service port listens on one stable proxy port, and the operator redirects traffic there.
 *
 * All traffic counts as internal and source ranges do not apply, as the redirect may hide the client's address.
 */
export class NonePortal extends ListenPlan<never> implements Portal {
  readonly kind = 'none';
  readonly #listener: Listener;

  constructor({ bindAddress: address = '127.0.0.1', allocator }: NonePortalOptions) {
    super(allocator);
    this.#listener = { address, traffic: 'internal' };
  }

  portTaken(servicePort: string, listen: ListenSpec): void {
    this.replacePort(servicePort, listen);
  }

  async commit(bound: Iterable<BoundPorts>): Promise<void> {
    this.settle(bound);
  }

  async close(): Promise<void> {
    // The sockets belong to the engine.
  }

  protected claimsOf(): never[] {
    return [];
  }

  protected listenersOf(): Listener[] {
    return [this.#listener];
  }

  protected isOnProxyPort(): boolean {
    return true;
  }
}
