import { createSocket, type RemoteInfo, type Socket } from 'node:dgram';
import { once } from 'node:events';

interface Held {
  readonly message: Buffer;
  readonly from: RemoteInfo;
}

export async function boundSocket(): Promise<Socket> {
  const socket = createSocket({ type: 'udp4', recvBufferSize: 1 << 20 });
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  return socket;
}

/** Sends datagrams back: each at once, or many together. */
export class UdpEndpoint {
  readonly #socket: Socket;
  #held: Held[] = [];
  /** How many to hold, and who waits for them. */
  #holding: { readonly count: number; readonly resolve: () => void } | undefined;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('message', (message, from) => this.#receive({ message, from }));
  }

  static async open(): Promise<UdpEndpoint> {
    return new UdpEndpoint(await boundSocket());
  }

  get port(): number {
    return this.#socket.address().port;
  }

  /** Keeps the next datagrams. Resolves when there are so many. */
  async hold(count: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#holding = { count, resolve };
    await promise;
  }

  /** Sends back what was held. Resolves when the system has it. */
  async release(): Promise<void> {
    this.#holding = undefined;
    const held = this.#held;
    this.#held = [];
    await Promise.all(held.map((each) => this.#sendBack(each)));
  }

  close(): void {
    this.#socket.close();
  }

  #receive(datagram: Held): void {
    if (this.#holding === undefined) {
      void this.#sendBack(datagram);
      return;
    }
    this.#held.push(datagram);
    if (this.#held.length === this.#holding.count) this.#holding.resolve();
  }

  async #sendBack({ message, from }: Held): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#socket.send(message, from.port, from.address, () => resolve());
    await promise;
  }
}
