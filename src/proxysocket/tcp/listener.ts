import { familyOf, type Family } from '../../util/family.ts';
import type { Listener, ServicePort } from '../core/service-port.ts';
import { sourceFilter, type SourceFilter } from '../core/source-ranges.ts';
import type { ListenSpec, Traffic } from '../spec.ts';
import { addressText, clientAddress } from './addresses.ts';
import { TcpConnection } from './connection.ts';
import { countRejected, publishAccepted } from './publish.ts';
import type { TcpShared } from './shared.ts';
import type { AcceptOwner, TcpClient, TcpListening, TcpTransport } from './transport.ts';

/** A listening TCP socket: lets clients in, for the service port that has it now. */
export class TcpListener implements Listener, AcceptOwner {
  readonly protocol = 'TCP';
  readonly address: string;
  readonly family: Family;
  readonly #shared: TcpShared;
  readonly #port: number;
  readonly #closed: (listener: TcpListener) => void;
  #listening: TcpListening | undefined;
  #owner: ServicePort;
  #traffic: Traffic;
  #filter: SourceFilter | undefined;

  /** `open` has to follow. `closed` is called when it does not listen any more. */
  constructor(
    shared: TcpShared,
    spec: ListenSpec,
    owner: ServicePort,
    closed: (listener: TcpListener) => void,
  ) {
    this.#shared = shared;
    this.#closed = closed;
    this.address = spec.address;
    this.family = familyOf(spec.address);
    this.#port = spec.port;
    this.#owner = owner;
    this.#traffic = spec.traffic;
    this.#filter = sourceFilter(owner.name, spec.sourceRanges);
  }

  get boundPort(): number {
    return this.#listening?.boundPort ?? this.#port;
  }

  /** Rejects with the system's error. */
  async open(transport: TcpTransport, spec: ListenSpec): Promise<void> {
    this.#listening = await transport.listen(spec, this);
  }

  assign(owner: ServicePort, traffic: Traffic, sourceRanges?: readonly string[]): void {
    this.#owner = owner;
    this.#traffic = traffic;
    this.#filter = sourceFilter(owner.name, sourceRanges);
  }

  accepted(client: TcpClient): void {
    const owner = this.#owner;
    const { gate } = this.#shared;
    owner.counters.connections += 1;
    publishAccepted(owner, client);
    if (this.#filter !== undefined && !this.#filter(clientAddress(client.remoteAddress()))) {
      this.#reject(client, 'source');
    } else if (gate.enter()) {
      const origin = { owner, traffic: this.#traffic, family: this.family };
      new TcpConnection(this.#shared, client, origin).start();
    } else {
      this.#reject(client, 'limit');
    }
  }

  acceptFailed(): void {
    countRejected(this.#owner, 'limit');
  }

  async close(): Promise<void> {
    this.#closed(this);
    await this.#listening?.close();
  }

  #reject(client: TcpClient, reason: 'source' | 'limit'): void {
    countRejected(this.#owner, reason, {
      get remoteAddress() {
        return addressText(client.remoteAddress());
      },
    });
    client.reset();
  }
}
