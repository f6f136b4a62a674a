import { createSocket, type RemoteInfo, type Socket } from 'node:dgram';
import { once } from 'node:events';
import type { EndpointSpec } from '../../src/proxysocket/spec.ts';
import type { Teardown } from './sockets.ts';
import { until } from './until.ts';

async function bind(t: Teardown, address: string, port: number): Promise<Socket> {
  const socket = createSocket({
    type: address.includes(':') ? 'udp6' : 'udp4',
    recvBufferSize: 4 * 1024 * 1024,
    lookup: (host, _options, callback) => callback(null, host, 0),
  });
  // With such a lookup the event comes before `bind` returns.
  const listening = once(socket, 'listening');
  socket.bind({ address, port, exclusive: true });
  await listening;
  let open = true;
  socket.once('close', () => (open = false));
  t.teardown(() => {
    if (open) socket.close();
  });
  return socket;
}

/** A UDP server that remembers what it got, and answers each datagram with what `answer` returns. */
export class UdpBackend {
  readonly received: { message: Buffer; remote: RemoteInfo }[] = [];
  readonly #socket: Socket;

  private constructor(socket: Socket, answer: (message: Buffer) => Buffer | undefined) {
    this.#socket = socket;
    socket.on('message', (message, remote) => {
      this.received.push({ message, remote });
      const reply = answer(message);
      if (reply !== undefined) this.send(reply, remote);
    });
  }

  static async start(
    t: Teardown,
    answer: (message: Buffer) => Buffer | undefined = (message) => message,
    { address = '127.0.0.1', port = 0 } = {},
  ): Promise<UdpBackend> {
    return new UdpBackend(await bind(t, address, port), answer);
  }

  /** Answers every datagram with `name`, so that a client sees who it was. */
  static async named(t: Teardown, name: string, address?: string): Promise<UdpBackend> {
    return UdpBackend.start(t, () => Buffer.from(name), address === undefined ? {} : { address });
  }

  get spec(): EndpointSpec {
    const { address, port } = this.#socket.address();
    return { address, port, internal: true, external: true };
  }

  /** The sender of the first datagram: where an answer has to go. */
  get firstPeer(): RemoteInfo {
    const first = this.received[0];
    if (first === undefined) throw new Error('nothing received yet');
    return first.remote;
  }

  /** How many sockets of the proxy it has heard from. */
  get peers(): number {
    return new Set(this.received.map(({ remote }) => remote.port)).size;
  }

  send(message: Buffer, to: { port: number; address: string }): void {
    this.#socket.send(message, to.port, to.address);
  }

  async close(): Promise<void> {
    this.#socket.close();
    await once(this.#socket, 'close');
  }
}

/** A client socket that keeps what it receives, with the address it came from. */
export class UdpClient {
  readonly replies: { message: Buffer; from: string }[] = [];
  readonly #socket: Socket;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('message', (message, { address, port }) => {
      this.replies.push({ message, from: `${address}:${port}` });
    });
    socket.on('error', () => undefined);
  }

  static async open(t: Teardown, address = '127.0.0.1', port = 0): Promise<UdpClient> {
    return new UdpClient(await bind(t, address, port));
  }

  get port(): number {
    return this.#socket.address().port;
  }

  get lastReply(): string | undefined {
    return this.replies.at(-1)?.message.toString();
  }

  send(message: Buffer | string, port: number, address = '127.0.0.1'): void {
    this.#socket.send(message, port, address);
  }

  /** Sends and waits for one more reply; resolves with its text. Loses no patience, so never use it where none may come. */
  async ask(message: Buffer | string, port: number, address = '127.0.0.1'): Promise<string> {
    const before = this.replies.length;
    this.send(message, port, address);
    await until(() => this.replies.length > before);
    return String(this.replies[before]?.message);
  }
}

/** Of a backend: answers nothing by itself. */
export const silent = (): undefined => undefined;
