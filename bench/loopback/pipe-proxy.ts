/**
 * What one writes first in Node: `pipe()` both ways for TCP, a socket for each client for UDP. No
 * balancing, no limits, no idle time. Answers requests once it listens.
 */
import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { answerRequests, settings } from '../support/dialogue.ts';
import type { LoopbackPorts } from './peers.ts';

export interface PipeProxySettings {
  /** Where it listens, and where the backend does, on the same ports. */
  readonly host: string;
  readonly backend: string;
  readonly ports: LoopbackPorts;
}

const { host, backend, ports } = settings() as PipeProxySettings;

async function relayTcp(port: number): Promise<void> {
  const server = createServer({ noDelay: true, allowHalfOpen: true }, (client) => {
    const endpoint = connect({ host: backend, port, allowHalfOpen: true, noDelay: true });
    client.on('error', () => endpoint.destroy());
    endpoint.on('error', () => client.destroy());
    client.pipe(endpoint).pipe(client);
  });
  server.listen({ host, port, backlog: 4096 });
  await once(server, 'listening');
}

async function relayUdp(port: number): Promise<void> {
  const options = { type: 'udp4', recvBufferSize: 4 << 20, sendBufferSize: 4 << 20 } as const;
  const server = createSocket(options);
  const sessions = new Map<string, UdpSocket>();
  server.on('message', (message, client) => {
    const key = `${client.address}:${client.port}`;
    let session = sessions.get(key);
    if (session === undefined) {
      session = createSocket(options);
      session.on('message', (reply) => server.send(reply, client.port, client.address));
      sessions.set(key, session);
    }
    session.send(message, port, backend);
  });
  server.bind(port, host);
  await once(server, 'listening');
}

await relayUdp(ports.echo);
for (const port of [ports.source, ports.sink, ports.http]) await relayTcp(port);
answerRequests(() => null);
