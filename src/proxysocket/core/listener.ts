import { familyOf, type Family } from '../../util/family.ts';
import type { ListenSpec, Traffic } from '../spec.ts';
import { clusterTraffic, sourceFilter, type ClusterTraffic, type SourceFilter } from './clients.ts';
import type { ServicePort } from './service-port.ts';

/** An open socket of a transport, or several at one address. */
export interface Listening {
  readonly boundPort: number;
  /** Resolves when the port is free. Idempotent. */
  close(): Promise<void>;
}

/** What listeners of both protocols have in common: the service port that has them now, and which clients it admits. */
export abstract class OwnedListener<L extends Listening = Listening> {
  readonly address: string;
  readonly family: Family;
  protected owner: ServicePort;
  protected filter: SourceFilter | undefined;
  protected listening: L | undefined;
  readonly #port: number;
  readonly #onClose: () => void;
  #traffic: Traffic;
  #clusterTraffic: ClusterTraffic | undefined;

  /** Call `open` next. `onClose` is called when it no longer listens. */
  constructor(spec: ListenSpec, owner: ServicePort, onClose: () => void) {
    this.address = spec.address;
    this.family = familyOf(spec.address);
    this.owner = owner;
    this.filter = sourceFilter(owner.name, spec.sourceRanges);
    this.#port = spec.port;
    this.#onClose = onClose;
    this.#traffic = spec.traffic;
    this.#clusterTraffic = clusterTraffic(owner.name, spec.clusterClients);
  }

  get boundPort(): number {
    return this.listening?.boundPort ?? this.#port;
  }

  get traffic(): Traffic {
    return this.#traffic;
  }

  /** Whether the traffic depends on the client. */
  protected get asksClient(): boolean {
    return this.#clusterTraffic !== undefined;
  }

  /** The traffic of a client at this address. */
  trafficOf(address: string): Traffic {
    const inCluster = this.#clusterTraffic;
    return inCluster?.includes(address) === true ? inCluster.traffic : this.#traffic;
  }

  /** Rejects with the system's error. */
  async open(opening: Promise<L>): Promise<void> {
    this.listening = await opening;
  }

  /** Hands the listener to a service port; new clients are served by it at once. */
  assign(owner: ServicePort, spec: ListenSpec): void {
    this.owner = owner;
    this.#traffic = spec.traffic;
    this.#clusterTraffic = clusterTraffic(owner.name, spec.clusterClients);
    this.filter = sourceFilter(owner.name, spec.sourceRanges);
  }

  /** TCP relays live on; UDP sessions end, since their answers leave through the listener. Idempotent. */
  async close(): Promise<void> {
    this.#onClose();
    await this.listening?.close();
  }
}
