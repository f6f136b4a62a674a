import { KpngError } from '../../errors.ts';
import type { BalancerEndpoint } from '../../roundrobin/types.ts';
import { familyOf, type Family } from '../../util/family.ts';
import type { Acceptor, EngineContext, Listener, ServicePort } from '../core/service-port.ts';
import { sourceFilter, type SourceFilter } from '../core/source-ranges.ts';
import type { NewProcess } from '../engine.ts';
import type { Inspectable } from '../inspect.ts';
import type { ListenSpec, Traffic } from '../spec.ts';
import type { ClientAddress } from './tables.ts';
import { Sessions } from './sessions.ts';
import type { UdpSession, UdpTransport, FrontOwner, UdpListening } from './transport.ts';

/**
 * The UDP half of an engine, on the sockets of a transport.
 *
 * A session is one client port at one listening socket, with a socket of its own that is connected to one endpoint. It
 * ends when it is idle, when its endpoint or service port or listener is gone, when an ICMP error says that no process
 * listens there, or when room is needed for a newer one. The client's next datagram then begins another one.
 */
export function createUdpAcceptor<S extends UdpSession<S>>(
  transport: UdpTransport<S>,
  context: EngineContext,
): Acceptor {
  return new UdpAcceptor(transport, context);
}

class UdpAcceptor<S extends UdpSession<S>> implements Acceptor {
  readonly #transport: UdpTransport<S>;
  readonly #sessions: Sessions<S>;
  readonly #listeners = new Set<UdpListener<S>>();
  readonly #opening = new Set<Promise<unknown>>();
  #hasLeft = false;
  #destroyed: Promise<void> | undefined;

  constructor(transport: UdpTransport<S>, context: EngineContext) {
    this.#transport = transport;
    this.#sessions = new Sessions(context, transport);
  }

  async listen(spec: ListenSpec, owner: ServicePort): Promise<Listener> {
    this.#refuseWhenDestroyed(owner);
    const listener = new UdpListener<S>(this.#sessions, spec, owner, (closed) => {
      this.#listeners.delete(closed);
    });
    const opening = listener.open(this.#transport, spec);
    this.#opening.add(opening);
    try {
      await opening;
    } finally {
      this.#opening.delete(opening);
    }
    this.#listeners.add(listener);
    if (this.#destroyed !== undefined) await listener.close();
    this.#refuseWhenDestroyed(owner);
    return listener;
  }

  endpointGone(owner: ServicePort, endpoint: BalancerEndpoint): void {
    this.#sessions.endpointGone(owner, endpoint);
  }

  servicePortGone(owner: ServicePort): void {
    if (!this.#hasLeft) this.#sessions.ownerGone(owner);
  }

  leave({ served }: NewProcess): void {
    this.#hasLeft = true;
    for (const listener of this.#listeners) listener.leave(served);
  }

  connections(): Iterable<Inspectable> {
    return this.#sessions.connections();
  }

  activeOf(owner: ServicePort, endpoint: BalancerEndpoint): number {
    return this.#sessions.activeOf(owner, endpoint);
  }

  drained(): Promise<void> {
    return this.#sessions.drained();
  }

  destroy(): Promise<void> {
    this.#destroyed ??= this.#destroy();
    return this.#destroyed;
  }

  async #destroy(): Promise<void> {
    this.#sessions.destroy();
    await Promise.allSettled(this.#opening);
    await Promise.all([...this.#listeners].map((listener) => listener.close()));
  }

  #refuseWhenDestroyed(owner: ServicePort): void {
    if (this.#destroyed === undefined) return;
    throw new KpngError('KPNG_LISTEN_FAILED', 'the UDP acceptor has been destroyed', {
      servicePort: owner.name,
    });
  }
}

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
