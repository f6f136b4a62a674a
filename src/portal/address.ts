import type { ListenSpec } from '../proxysocket/spec.ts';
import { hostAddresses, type HostAddress } from '../util/host-addresses.ts';
import { claimKey, ClaimTable, type Claim } from './claims.ts';
import type { AddressKeeper } from './interface/keeper.ts';
import { dependsOnHost, nodePortAddresses } from './node-addresses.ts';
import { portalText, sameListen } from './text.ts';
import type {
  Portal,
  PortalPlan,
  PortalProblem,
  PortalSpec,
  ServicePortPortals,
} from './portal.ts';

export interface AddressPortalOptions {
  /**
   * Where node ports are opened: networks, addresses, or `primary`, `localhost`, `all`. Empty
   * (default): on every address of the host, as kube-proxy does.
   */
  readonly nodePortAddresses?: readonly string[];
  /** The host's addresses now; by default as Node or the keeper tells them. */
  readonly interfaces?: () => readonly HostAddress[];
  /** Puts the service addresses on an interface. Without it, only addresses that the host has work. */
  readonly keeper?: AddressKeeper;
}

/** One place that a portal leads to. */
interface Place {
  readonly claim: Claim;
  readonly listen: ListenSpec;
  readonly portal: PortalSpec;
}

/** What is known of one service port. */
interface Entry {
  readonly wanted: ServicePortPortals;
  readonly places: ReadonlyMap<string, Place>;
  /** Node ports that have no address to be opened on. */
  readonly withoutAddress: readonly PortalSpec[];
  listen: readonly ListenSpec[];
}

/**
 * Lets the engine listen on the service addresses themselves. An address that the host does not have
 * is added to an interface if there is a keeper, and cannot be listened on otherwise; Linux has all of
 * 127.0.0.0/8.
 *
 * Where two service ports want one place, the holder keeps it and the other one gets it as soon as
 * it is free, in the same plan. Node ports listen on the wildcard address by default, which is in
 * the way of every single address with that port.
 */
export class AddressPortal implements Portal {
  readonly kind = 'address';
  readonly #nodePortAddresses: readonly string[];
  readonly #interfaces: () => readonly HostAddress[];
  readonly #keeper: AddressKeeper | undefined;
  readonly #entries = new Map<string, Entry>();
  readonly #claims = new ClaimTable();
  /** Names of service ports whose places depend on the host's addresses. */
  readonly #withNodePorts = new Set<string>();
  /** Names of service ports with node ports that have no address to be opened on. */
  readonly #withoutAddress = new Set<string>();
  #nodeAddresses: readonly string[];

  /** Throws a RangeError when `nodePortAddresses` has an item that is not an address or network. */
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
    for (const each of wanted.values()) this.#remember(each);

    const claims = new Map<string, Claim[]>();
    for (const name of wanted.keys()) claims.set(name, this.#claimsOf(name));
    const changed = this.#claims.update(claims, removed);

    const listen = new Map<string, readonly ListenSpec[]>();
    for (const name of new Set([...wanted.keys(), ...changed])) {
      const entry = this.#entries.get(name);
      if (entry === undefined) continue;
      const now = [...entry.places.values()]
        .filter(({ claim }) => this.#claims.holds(name, claim))
        .map((place) => place.listen);
      if (sameListen(now, entry.listen)) continue;
      entry.listen = now;
      listen.set(name, now);
    }
    return { listen, problems: this.problems() };
  }

  problems(): readonly PortalProblem[] {
    return [...this.#claimProblems(), ...(this.#keeper?.problems ?? [])];
  }

  /** Adds the addresses that the host lacks. */
  async prepare(): Promise<void> {
    await this.#keeper?.prepare();
  }

  /** Removes the addresses that nobody wants any more. Rejects with KPNG_PORTAL_*. */
  async commit(): Promise<void> {
    await this.#keeper?.commit();
  }

  hostAddresses(): readonly HostAddress[] {
    return this.#interfaces();
  }

  leave(): void {
    this.#keeper?.leave();
  }

  /** Call it when nothing listens any more. Rejects with KPNG_PORTAL_* when addresses cannot be removed. */
  async close(): Promise<void> {
    // The sockets belong to the engine.
    await this.#keeper?.close();
  }

  /** Service ports with node ports, if the host's addresses have changed in a way that matters to them. */
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
    this.#withoutAddress.delete(name);
  }

  #remember(wanted: ServicePortPortals): void {
    const name = wanted.servicePort;
    const places = new Map<string, Place>();
    const withoutAddress: PortalSpec[] = [];
    this.#withNodePorts.delete(name);
    this.#withoutAddress.delete(name);
    for (const portal of wanted.portals) {
      const addresses = portal.address === undefined ? this.#nodeAddresses : [portal.address];
      if (portal.address === undefined) this.#withNodePorts.add(name);
      if (addresses.length === 0) {
        withoutAddress.push(portal);
        this.#withoutAddress.add(name);
      }
      for (const address of addresses) {
        const place = placeOf(portal, address);
        const key = claimKey(place.claim);
        // The same place twice, as cluster IP and as external IP: the first one counts.
        if (!places.has(key)) places.set(key, place);
      }
    }
    const listen = this.#entries.get(name)?.listen ?? [];
    this.#entries.set(name, { wanted, places, withoutAddress, listen });
    this.#keeper?.want(name, addressesOf(wanted));
  }

  #claimsOf(name: string): Claim[] {
    return [...(this.#entries.get(name)?.places.values() ?? [])].map(({ claim }) => claim);
  }

  #claimProblems(): PortalProblem[] {
    const problems: PortalProblem[] = [];
    for (const { owner, claim, holder } of this.#claims.waiting()) {
      const portal = this.#entries.get(owner)?.places.get(claimKey(claim))?.portal;
      problems.push({
        servicePort: owner,
        portal,
        code: 'KPNG_PORTAL_CONFLICT',
        message:
          `${owner} cannot have ${portalText(claim)}: ` +
          (holder === owner
            ? 'another of its own addresses is in the way'
            : `${holder} has it, and it changes hands when that one gives it up`),
      });
    }
    for (const name of this.#withoutAddress) {
      for (const portal of this.#entries.get(name)?.withoutAddress ?? []) {
        problems.push({
          servicePort: name,
          portal,
          code: 'KPNG_LISTEN_ADDRESS_NOT_AVAILABLE',
          message:
            `${name} cannot have node port ${portal.port}/${portal.protocol}: the host has no address in ` +
            `--nodeport-addresses ${this.#nodePortAddresses.join(',')}`,
        });
      }
    }
    return problems;
  }
}

/** The addresses that are the service port's own; the host has loopback addresses anyhow. */
function addressesOf({ portals }: ServicePortPortals): string[] {
  return portals.flatMap(({ address }) =>
    address === undefined || isLoopback(address) ? [] : [address],
  );
}

function isLoopback(address: string): boolean {
  return address === '::1' || address.startsWith('127.');
}

function placeOf(portal: PortalSpec, address: string): Place {
  const { protocol, port, traffic, sourceRanges } = portal;
  const listen: ListenSpec =
    sourceRanges.length === 0
      ? { address, port, traffic }
      : { address, port, traffic, sourceRanges };
  return { claim: { protocol, address, port }, listen, portal };
}
