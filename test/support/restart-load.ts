/** Clients that ask without a pause, for tests that restart what serves them. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { get } from 'node:http';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import type { Teardown } from './sockets.ts';
import { until } from './until.ts';

/** How long a datagram may take before it counts as lost. */
const LOST_MS = 1000;
const REQUEST = 'x'.repeat(100);
/** So that a machine with other work can start programs meanwhile. None when it is measured. */
const PAUSE_MS = process.env['RESTARTS'] === undefined ? 3 : 0;

export interface Tally {
  /** Connections that got back what they sent. */
  readonly ok: number;
  /** The others, by what came of them. */
  readonly failed: Readonly<Record<string, number>>;
  /** Datagrams that were answered, and that were not. */
  readonly answered: number;
  readonly lost: number;
}

/** A TCP server and a UDP socket at one port that send back what they get. */
export async function echoServers(t: Teardown): Promise<number> {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => {}).pipe(socket);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  const { port } = server.address() as AddressInfo;
  const udp = createSocket('udp4', (message, { port: client, address }) => {
    udp.send(message, client, address);
  });
  udp.bind(port, '127.0.0.1');
  await once(udp, 'listening');
  t.teardown(() => udp.close());
  return port;
}

/** A connection for each request, some at a time, and a datagram socket that stays. Ends on request. */
export function ceaseless(host: string, port: number, udpPort = port): () => Promise<Tally> {
  const failed: Record<string, number> = {};
  let [ok, answered, lost] = [0, 0, 0];
  const stop = new AbortController();
  const tcp = async (): Promise<void> => {
    while (!stop.signal.aborted) {
      if (PAUSE_MS > 0) await delay(PAUSE_MS);
      const outcome = await request(host, port);
      if (outcome === 'ok') ok += 1;
      else failed[outcome] = (failed[outcome] ?? 0) + 1;
    }
  };
  const udp = async (): Promise<void> => {
    const socket = createSocket('udp4');
    socket.on('error', () => {});
    socket.connect(udpPort, host);
    await once(socket, 'connect');
    for (let number = 0; !stop.signal.aborted; number += 1) {
      if (PAUSE_MS > 0) await delay(PAUSE_MS);
      if (await exchangeDatagram(socket, `datagram ${number}`)) answered += 1;
      else lost += 1;
    }
    socket.close();
  };
  const work = Promise.all([tcp(), tcp(), tcp(), tcp(), udp()]);
  return async () => {
    stop.abort();
    await work;
    return { ok, failed, answered, lost };
  };
}

/** Asks for pages, a connection for each, until stopped. What is not a 200 has failed. */
export function ceaselessPages(
  urls: readonly string[],
): () => Promise<Pick<Tally, 'ok' | 'failed'>> {
  const failed: Record<string, number> = {};
  let ok = 0;
  const stop = new AbortController();
  const ask = async (url: string): Promise<void> => {
    while (!stop.signal.aborted) {
      if (PAUSE_MS > 0) await delay(PAUSE_MS);
      const outcome = await pageOutcome(url);
      if (outcome === '200') ok += 1;
      else failed[outcome] = (failed[outcome] ?? 0) + 1;
    }
  };
  const work = Promise.all(urls.map(ask));
  return async () => {
    stop.abort();
    await work;
    return { ok, failed };
  };
}

function pageOutcome(url: string): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  const asked = get(url, { agent: false }, (response) => {
    response.on('end', () => resolve(String(response.statusCode))).resume();
  });
  asked.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
  return promise;
}

function request(host: string, port: number): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  const socket = connect({ host, port, allowHalfOpen: true });
  let answer = '';
  socket.setEncoding('latin1').on('data', (text: string) => {
    answer += text;
  });
  socket.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
  socket.on('close', () => resolve(answer === REQUEST ? 'ok' : `${answer.length} bytes`));
  socket.end(REQUEST);
  return promise;
}

async function exchangeDatagram(
  socket: ReturnType<typeof createSocket>,
  text: string,
): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const onMessage = (message: Buffer): void => {
    if (String(message) === text) resolve(true);
  };
  socket.on('message', onMessage);
  const timer = setTimeout(() => resolve(false), LOST_MS);
  socket.send(text);
  const wasAnswered = await promise;
  clearTimeout(timer);
  socket.off('message', onMessage);
  return wasAnswered;
}

/** A connection that stays until it is ended, and reports whether it still gets answers. */
export class LongConnection {
  readonly #socket: Socket;
  #answers = '';
  #error: string | undefined;
  #ended = false;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.setEncoding('latin1').on('data', (text: string) => {
      this.#answers += text;
    });
    socket.on('end', () => {
      this.#ended = true;
    });
    socket.on('error', (error: NodeJS.ErrnoException) => {
      this.#error = error.code ?? error.message;
    });
  }

  static async open(host: string, port: number): Promise<LongConnection> {
    const socket = connect({ host, port, allowHalfOpen: true });
    await once(socket, 'connect');
    const connection = new LongConnection(socket);
    await connection.exchange('first');
    return connection;
  }

  /** Rejects unless the answer comes. */
  async exchange(text: string): Promise<void> {
    this.#answers = '';
    this.#socket.write(text);
    await until(() => this.#answers === text || this.#error !== undefined || this.#ended);
    if (this.#answers !== text) throw new Error(this.#error ?? 'the connection has ended');
  }

  /** Ends it in order. */
  async end(): Promise<void> {
    this.#socket.end();
    await until(() => this.#ended || this.#error !== undefined);
    if (this.#error !== undefined) throw new Error(this.#error);
  }
}
