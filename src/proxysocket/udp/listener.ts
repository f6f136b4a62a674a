import { familyOf, type Family } from '../../util/family.ts';
import type { Listener, ServicePort } from '../core/service-port.ts';
import { sourceFilter, type SourceFilter } from '../core/source-ranges.ts';
import type { ListenSpec, Traffic } from '../spec.ts';
import type { ClientAddress } from './client-table.ts';
import type { Sessions } from './sessions.ts';
import type { FrontOwner, UdpListening, UdpSession, UdpTransport } from './transport.ts';

/** A listening UDP socket: lets clients in, for the service port that has it now. */
export class UdpListener<S extends UdpSession<S>> implements Listener, FrontOwner<S> {
  readonly protocol = 'UDP';
  readonly address: string;
  readonly family: Family;
  readonly #sessions: Sessions<S>;
  readonly #port: number;
  readonly #closed: (listener: UdpListener<S>) => void;
  #listening: UdpListening<S> | undefined;
  #owner: ServicePort;
  #traffic: Traffic;
  #admits: SourceFilter | undefined;

  /** `open` has to follow. `closed` is called when it does not listen any more. */
  constructor(
    sessions: Sessions<S>,
    spec: ListenSpec,
    owner: ServicePort,
    closed: (listener: UdpListener<S>) => void,
  ) {
    this.#sessions = sessions;
    this.#closed = closed;
    this.address = spec.address;
    this.family = familyOf(spec.address);
    this.#port = spec.port;
    this.#owner = owner;
    this.#traffic = spec.traffic;
    this.#admits = sourceFilter(owner.name, spec.sourceRanges);
  }

  get boundPort(): number {
    return this.#listening?.boundPort ?? this.#port;
  }

  get traffic(): Traffic {
    return this.#traffic;
  }

  /** Rejects with the system's error. */
  async open(transport: UdpTransport<S>, spec: ListenSpec): Promise<void> {
    this.#listening = await transport.listen(spec, this);
  }

  /** New clients are served by the new owner at once. Sessions that do not fit any more end. */
  assign(owner: ServicePort, traffic: Traffic, sourceRanges?: readonly string[]): void {
    const sameService = this.#owner === owner && this.#traffic === traffic;
    this.#owner = owner;
    this.#traffic = traffic;
    this.#admits = sourceFilter(owner.name, sourceRanges);
    for (const front of this.#listening?.fronts() ?? []) {
      const misfits = front
        .all()
        .filter(({ client }) => !sameService || this.#admits?.(client.address) === false);
      this.endAll(misfits);
    }
  }

  begin(front: S['front'], client: ClientAddress): S | undefined {
    if (this.#admits?.(client.address) === false) {
      this.#sessions.refusals.refuse(this.#owner, client, 'source');
      return undefined;
    }
    return this.#sessions.begin(front, this.#owner, client);
  }

  dropped(): void {
    this.#owner.counters.datagramsDropped += 1;
  }

  endAll(sessions: readonly S[]): void {
    this.#sessions.endAll(sessions);
  }

  /** Another process has `served` some sockets by now, by inode numbers. */
  leave(served: ReadonlySet<number>): void {
    for (const front of this.#listening?.fronts() ?? []) front.leave(served);
  }

  async close(): Promise<void> {
    this.#closed(this);
    await this.#listening?.close();
  }
}
