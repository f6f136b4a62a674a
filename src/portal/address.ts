import { isDeepStrictEqual } from 'node:util';
import type { ListenSpec } from '../proxysocket/spec.ts';
import { hostAddresses, type HostAddress } from '../util/host-addresses.ts';
import { isLoopback } from '../util/host-port.ts';
import { ClaimTable, type Claim } from './claims.ts';
import type { AddressKeeper } from './interface/keeper.ts';
import { dependsOnHost, nodePortAddresses } from './node-addresses.ts';
import {
  type Portal,
  type PortalPlan,
  type PortalProblem,
  type PortalSpec,
  portalText,
  type ServicePortPortals,
} from './portal.ts';

export interface AddressPortalOptions {
  /** Addresses that node ports open on: networks, addresses, `primary`, `localhost`, `all`. Empty (default): all. */
  readonly nodePortAddresses?: readonly string[];
  /** The host's addresses now; by default as Node or the keeper reports them. */
  readonly interfaces?: () => readonly HostAddress[];
  /** Puts the service addresses on an interface. Without it, only addresses that the host has work. */
  readonly keeper?: AddressKeeper;
}

/** A portal on one address, and its listener. */
interface AddressClaim extends Claim {
  readonly address: string;
  readonly portal: PortalSpec;
  readonly listen: ListenSpec;
}

interface Entry {
  readonly wanted: ServicePortPortals;
  listen: readonly ListenSpec[];
}

/**
 * Lets the engine listen on the service addresses themselves. A keeper, if there is one, adds addresses that the host
 * lacks.
 *
 * Node ports listen on the wildcard address by default, which conflicts with every single address with that port.
 */
export class AddressPortal implements Portal {
  readonly kind = 'address';
  readonly #nodePortAddresses: readonly string[];
  readonly #interfaces: () => readonly HostAddress[];
  readonly #keeper: AddressKeeper | undefined;
  readonly #entries = new Map<string, Entry>();
  readonly #claims = new ClaimTable<AddressClaim>();
  /** Service ports with node ports, whose addresses depend on those of the host. */
  readonly #withNodePorts = new Set<string>();
  #nodeAddresses: readonly string[];

  /** Throws a RangeError for an invalid item of `nodePortAddresses`. */
  constructor(options: AddressPortalOptions = {}) {
    const { keeper } = options;
    this.#keeper = keeper;
    this.#nodePortAddresses = options.nodePortAddresses ?? [];
    this.#interfaces =
      options.interfaces ?? (keeper === undefined ? hostAddresses : () => keeper.hostAddresses());
    this.#nodeAddresses = nodePortAddresses(this.#nodePortAddresses, this.#interfaces());
  }

  plan(set: readonly ServicePortPortals[], remove: readonly string[]): PortalPlan {
    const removed = new Set(remove);
    const wanted = new Map(set.map((each) => [each.servicePort, each]));
    for (const each of this.#affectedByHost()) {
      const name = each.servicePort;
      if (!removed.has(name) && !wanted.has(name)) wanted.set(name, each);
    }
    for (const name of removed) this.#forget(name);
    const claims = new Map([...wanted].map(([name, each]) => [name, this.#remember(each)]));
    const changed = this.#claims.update(claims, removed);

    const listen = new Map<string, readonly ListenSpec[]>();
    for (const name of new Set([...wanted.keys(), ...changed])) {
      const entry = this.#entries.get(name);
      if (entry === undefined) continue;
      const now = this.#claims.held(name).map((claim) => claim.listen);
      if (isDeepStrictEqual(now, entry.listen)) continue;
      entry.listen = now;
      listen.set(name, now);
    }
    return { listen, problems: this.problems() };
  }

  problems(): readonly PortalProblem[] {
    const conflict = this.#claims.problem((claim) => [claim.portal, portalText(claim)]);
    return [
      ...(conflict === undefined ? [] : [conflict]),
      ...this.#problemsWithoutAddress(),
      ...(this.#keeper?.problems ?? []),
    ];
  }

  /** Adds the addresses that the host lacks. */
  async prepare(): Promise<void> {
    await this.#keeper?.prepare();
  }

  /** Removes the addresses that no service port needs any more. Rejects with KPNG_PORTAL_*. */
  async commit(): Promise<void> {
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

  /** Service ports with node ports, if a relevant address of the host has changed. */
  #affectedByHost(): ServicePortPortals[] {
    if (!dependsOnHost(this.#nodePortAddresses)) return [];
    const now = nodePortAddresses(this.#nodePortAddresses, this.#interfaces());
    if (now.join() === this.#nodeAddresses.join()) return [];
    this.#nodeAddresses = now;
    return [...this.#withNodePorts].flatMap((name) => this.#entries.get(name)?.wanted ?? []);
  }

  #forget(name: string): void {
    this.#keeper?.want(name, []);
    this.#entries.delete(name);
    this.#withNodePorts.delete(name);
  }

  /** Records the addresses of a service port, and returns its claims. */
  #remember(wanted: ServicePortPortals): AddressClaim[] {
    const { servicePort: name, portals } = wanted;
    this.#entries.set(name, { wanted, listen: this.#entries.get(name)?.listen ?? [] });
    if (portals.some(({ address }) => address === undefined)) this.#withNodePorts.add(name);
    else this.#withNodePorts.delete(name);
    this.#keeper?.want(name, addressesOf(wanted));
    return portals.flatMap((portal) => {
      const addresses = portal.address === undefined ? this.#nodeAddresses : [portal.address];
      return addresses.map((address) => claimOf(portal, address));
    });
  }

  #problemsWithoutAddress(): PortalProblem[] {
    const [servicePort] = this.#withNodePorts;
    if (this.#nodeAddresses.length > 0 || servicePort === undefined) return [];
    const portals = this.#entries.get(servicePort)?.wanted.portals;
    const portal = portals?.find(({ address }) => address === undefined);
    const message =
      `${servicePort} cannot have node port ${portal?.port}/${portal?.protocol}: the host has no address in ` +
      `--nodeport-addresses ${this.#nodePortAddresses.join(',')}`;
    const code = 'KPNG_LISTEN_ADDRESS_NOT_AVAILABLE';
    return [{ servicePort, portal, code, message, count: this.#withNodePorts.size }];
  }
}

/** The service port's own addresses; the host has loopback addresses anyway. */
function addressesOf({ portals }: ServicePortPortals): string[] {
  return portals.flatMap(({ address }) =>
    address === undefined || isLoopback(address) ? [] : [address],
  );
}

function claimOf(portal: PortalSpec, address: string): AddressClaim {
  const { protocol, port, traffic, sourceRanges, clusterClients } = portal;
  const filter = {
    ...(sourceRanges.length > 0 && { sourceRanges }),
    ...(clusterClients && { clusterClients }),
  };
  return { protocol, address, port, portal, listen: { address, port, traffic, ...filter } };
}
