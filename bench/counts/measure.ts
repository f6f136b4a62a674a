/** What an engine does for one unit of work, as counts: the same on a fast machine and on a slow one. */
import type { Socket as UdpSocket } from 'node:dgram';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { Dialogue } from '../support/dialogue.ts';
import type { CountedEngine, Counts } from './program.ts';
import { boundSocket, UdpEndpoint } from './udp-endpoint.ts';

const PROGRAM = join(import.meta.dirname, 'program.ts');
/** So that what has been warmed up is also compiled, and a slow machine counts the same. */
const FLAGS = ['--no-concurrent-recompilation'];

/** For one unit of work: a request, a connection, a datagram there and back, a MiB. */
export interface Cost {
  readonly turns: number;
  /** System calls of all kinds that are counted. */
  readonly calls: number;
  /** On the heap of JavaScript. Bytes. */
  readonly allocated: number;
}

/** An engine in a process of its own, and an endpoint and clients in this one. */
export class CountedProxy {
  readonly #dialogue: Dialogue;
  readonly #server: Server;
  readonly #udp: UdpEndpoint;
  #ports: Counts['ports'] = { tcp: 0, udp: 0 };

  private constructor(dialogue: Dialogue, server: Server, udp: UdpEndpoint) {
    this.#dialogue = dialogue;
    this.#server = server;
    this.#udp = udp;
  }

  static async start(
    engine: CountedEngine['engine'],
    { calls }: { readonly calls: boolean },
  ): Promise<CountedProxy> {
    const server = createServer({ noDelay: true }, echo);
    server.listen({ host: '127.0.0.1', port: 0 });
    await once(server, 'listening');
    const udp = await UdpEndpoint.open();
    const endpoint = { tcp: (server.address() as AddressInfo).port, udp: udp.port };
    const settings: CountedEngine = { engine, calls, endpoint };
    const dialogue = new Dialogue([process.execPath, ...FLAGS, PROGRAM, JSON.stringify(settings)]);
    const proxy = new CountedProxy(dialogue, server, udp);
    try {
      proxy.#ports = (await proxy.#ask()).ports;
      return proxy;
    } catch (error) {
      await proxy.close();
      throw error;
    }
  }

  async close(): Promise<void> {
    await this.#dialogue.kill();
    this.#server.close();
    this.#udp.close();
  }

  /** Small requests on one connection, each after the answer to the last one. */
  async requests(count: number): Promise<Cost> {
    const socket = await this.#connect();
    await exchange(socket, 100);
    const cost = await this.#costOf(count, () => exchange(socket, count));
    socket.destroy();
    return cost;
  }

  /** Connections with one small request each, one after the other. */
  async connections(count: number): Promise<Cost> {
    const one = async (): Promise<void> => {
      const socket = await this.#connect();
      await exchange(socket, 1);
      socket.end();
      await once(socket, 'close');
    };
    for (let warm = 0; warm < 50; warm += 1) await one();
    return this.#costOf(count, async () => {
      for (let done = 0; done < count; done += 1) await one();
    });
  }

  /** MiB there and back at the same time, as fast as they go. */
  async bulk(mib: number): Promise<Cost> {
    const socket = await this.#connect();
    const chunk = Buffer.alloc(1 << 20, 'b');
    await transfer(socket, chunk, 16);
    const cost = await this.#costOf(mib, () => transfer(socket, chunk, mib));
    socket.destroy();
    return cost;
  }

  /** Datagrams there and back, one client, each after the answer to the last one. */
  async datagrams(count: number): Promise<Cost> {
    const client = await this.#udpClient();
    await roundTrips(client, 50);
    const cost = await this.#costOf(count, () => roundTrips(client, count));
    client.close();
    return cost;
  }

  /**
   * Datagrams there and back, of several clients. Each direction's datagrams are all there before the
   * proxy gets a core, so that it can take them together.
   */
  async bursts(count: number, clients = 8, each = 8): Promise<Cost> {
    const sockets = await Promise.all(Array.from({ length: clients }, () => this.#udpClient()));
    for (const socket of sockets) await roundTrips(socket, 5);
    const cost = await this.#costOf(count * clients * each, async () => {
      for (let burst = 0; burst < count; burst += 1) await this.#burst(sockets, each);
    });
    for (const socket of sockets) socket.close();
    return cost;
  }

  async #burst(sockets: readonly UdpSocket[], each: number): Promise<void> {
    const total = sockets.length * each;
    const held = this.#udp.hold(total);
    await this.#whileStopped(() =>
      Promise.all(sockets.flatMap((socket) => Array.from({ length: each }, () => sendOne(socket)))),
    );
    await held;
    const all = Promise.withResolvers<void>();
    let left = total;
    const onMessage = (): void => {
      left -= 1;
      if (left === 0) all.resolve();
    };
    for (const socket of sockets) socket.on('message', onMessage);
    await this.#whileStopped(() => this.#udp.release());
    await all.promise;
    for (const socket of sockets) socket.off('message', onMessage);
  }

  async #whileStopped(work: () => Promise<unknown>): Promise<void> {
    process.kill(this.#dialogue.pid, 'SIGSTOP');
    await work();
    process.kill(this.#dialogue.pid, 'SIGCONT');
  }

  /** What asking costs by itself is left out. */
  async #costOf(units: number, work: () => Promise<void>): Promise<Cost> {
    const [one, two] = [await this.#ask(), await this.#ask()];
    await work();
    const three = await this.#ask();
    const of = (pick: (counts: Counts) => number): number =>
      Math.max(0, pick(three) - pick(two) - (pick(two) - pick(one))) / units;
    return {
      turns: of(({ turns }) => turns),
      calls: of(({ calls }) => Object.values(calls).reduce((sum, each) => sum + each, 0)),
      allocated: of(({ allocated }) => allocated),
    };
  }

  #ask(): Promise<Counts> {
    return this.#dialogue.ask<Counts>({});
  }

  async #connect(): Promise<Socket> {
    const socket = connect({ host: '127.0.0.1', port: this.#ports.tcp, noDelay: true });
    await once(socket, 'connect');
    return socket;
  }

  async #udpClient(): Promise<UdpSocket> {
    const socket = await boundSocket();
    socket.connect(this.#ports.udp, '127.0.0.1');
    await once(socket, 'connect');
    return socket;
  }
}

const REQUEST = Buffer.alloc(128, 'q');
const DATAGRAM = Buffer.alloc(64, 'd');

/** Sends back what it gets, whatever becomes of the client. */
function echo(socket: Socket): void {
  socket.on('error', () => socket.destroy());
  socket.pipe(socket);
}

/** So many requests, one after the other. */
async function exchange(socket: Socket, count: number): Promise<void> {
  for (let done = 0; done < count; done += 1) await transfer(socket, REQUEST, 1);
}

/** Writes so many chunks and reads as much. Rejects when the connection ends before. */
async function transfer(socket: Socket, chunk: Buffer, chunks: number): Promise<void> {
  const all = Promise.withResolvers<void>();
  let left = chunks * chunk.length;
  const onData = (data: Buffer): void => {
    left -= data.length;
    if (left <= 0) all.resolve();
  };
  const onClose = (): void => all.reject(new Error('the connection has ended'));
  socket.on('data', onData).once('close', onClose);
  for (let written = 0; written < chunks; written += 1) {
    if (!socket.write(chunk)) await Promise.race([once(socket, 'drain'), all.promise]);
  }
  await all.promise;
  socket.off('data', onData).off('close', onClose);
}

async function roundTrips(socket: UdpSocket, count: number): Promise<void> {
  for (let done = 0; done < count; done += 1) {
    const back = once(socket, 'message');
    await sendOne(socket);
    await back;
  }
}

async function sendOne(socket: UdpSocket): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  socket.send(DATAGRAM, () => resolve());
  await promise;
}
