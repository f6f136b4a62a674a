import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { pipeline } from 'node:stream/promises';
import { digestOfStream, streamOf } from './stream-bytes.ts';

/** Seed of the bytes that every endpoint sends. */
export const SEED = 'endpoint';

/** What an endpoint listens on. */
export interface EndpointPorts {
  readonly http: number;
  readonly echo: number;
}

/**
 * A small server that stands for a pod, for trying things out.
 *
 * HTTP `GET /` says its name, `GET /bytes/N` sends N bytes that the other end can make again,
 * and `PUT /digest` answers with the SHA-256 of what it was sent. UDP says its name and repeats the
 * datagram.
 */
export class Endpoint {
  readonly name: string;
  readonly address: string;
  readonly #ports: EndpointPorts;
  #http: Server | undefined;
  #udp: Socket | undefined;

  constructor(name: string, address: string, ports: EndpointPorts) {
    this.name = name;
    this.address = address;
    this.#ports = ports;
  }

  /** Resolves when both sockets listen. */
  async start(): Promise<void> {
    // Clients keep idle connections, be it on a loaded machine.
    const options = { keepAliveTimeout: 600_000 };
    const http = createServer(options, (request, response) => this.#answer(request, response));
    const udp = createSocket('udp4');
    this.#http = http;
    this.#udp = udp;
    udp.on('message', (message, peer) => {
      udp.send(`${this.name} says ${message.toString()}`, peer.port, peer.address);
    });
    http.listen(this.#ports.http, this.address);
    udp.bind(this.#ports.echo, this.address);
    await Promise.all([once(http, 'listening'), once(udp, 'listening')]);
  }

  /** Ends it as a crash would: nothing listens any more and open connections are cut. Idempotent. */
  kill(): void {
    this.#http?.close();
    this.#http?.closeAllConnections();
    this.#udp?.close();
    this.#http = undefined;
    this.#udp = undefined;
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const length = /^\/bytes\/(\d+)$/.exec(request.url ?? '')?.[1];
    response.setHeader('x-endpoint', this.name);
    if (length !== undefined) {
      response.setHeader('content-length', length);
      // The client ended the transfer; there is no one left to report an error to.
      pipeline(streamOf(SEED, Number(length)), response).catch(() => undefined);
    } else if (request.url === '/digest') {
      void digestOfStream(request).then(
        ({ digest }) => response.end(`${digest}\n`),
        () => response.destroy(),
      );
    } else {
      response.end(`hello from ${this.name}\n`);
    }
  }
}
