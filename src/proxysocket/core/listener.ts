import { familyOf, type Family } from '../../util/family.ts';
import type { ListenSpec, Traffic } from '../spec.ts';
import { sourceFilter, trafficRule, type ClientIp, type SourceFilter } from './clients.ts';
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
  protected listening: L | undefined;
  protected traffic: Traffic;
  readonly #port: number;
  readonly #onClose: () => void;
  #trafficOf: (from: ClientIp) => Traffic;
  #admits: SourceFilter | undefined;

  /** Call `open` next. `onClose` is called when it no longer listens. */
  constructor(spec: ListenSpec, owner: ServicePort, onClose: () => void) {
    this.address = spec.address;
    this.family = familyOf(spec.address);
    this.owner = owner;
    this.#port = spec.port;
    this.#onClose = onClose;
    this.traffic = spec.traffic;
    this.#trafficOf = trafficRule(owner.name, spec);
    this.#admits = sourceFilter(owner.name, spec.sourceRanges);
  }

  get boundPort(): number {
    return this.listening?.boundPort ?? this.#port;
  }

  admits(from: ClientIp): boolean {
    return this.#admits?.(from.client) ?? true;
  }

  trafficOf(from: ClientIp): Traffic {
    return this.#trafficOf(from);
  }

  /** Rejects with the system's error. */
  async open(opening: Promise<L>): Promise<void> {
    this.listening = await opening;
  }

  /** Hands the listener to a service port; new clients are served by it at once. */
  assign(owner: ServicePort, spec: ListenSpec): void {
    this.owner = owner;
    this.traffic = spec.traffic;
    this.#trafficOf = trafficRule(owner.name, spec);
    this.#admits = sourceFilter(owner.name, spec.sourceRanges);
  }

  /** TCP relays live on; UDP sessions end, since their answers leave through the listener. Idempotent. */
  async close(): Promise<void> {
    this.#onClose();
    await this.listening?.close();
  }
}
