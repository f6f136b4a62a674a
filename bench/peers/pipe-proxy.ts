/**
 * What one writes first in Node: `pipe()` both ways for TCP, a socket for each client for UDP. No
 * balancing, no limits, no idle time. Settings `{host, targets}`, answer `{targets}`.
 */
import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { answer, endWithParent, settings } from '../support/worker.ts';
import { TARGET_NAMES, type Target, type Targets } from './targets.ts';

export interface PipeProxySettings {
  readonly host: string;
  readonly targets: Targets;
}

export interface PipeProxyAnswer {
  readonly targets: Targets;
}

const { host, targets } = settings() as PipeProxySettings;

async function relayTcp(to: Target): Promise<Target> {
  const server = createServer({ noDelay: true, allowHalfOpen: true }, (client) => {
    const endpoint = connect({ ...to, allowHalfOpen: true, noDelay: true });
    client.on('error', () => endpoint.destroy());
    endpoint.on('error', () => client.destroy());
    client.pipe(endpoint).pipe(client);
  });
  server.listen({ host, port: 0, backlog: 4096 });
  await once(server, 'listening');
  const bound = server.address();
  return { host, port: bound !== null && typeof bound === 'object' ? bound.port : 0 };
}

async function relayUdp(to: Target): Promise<Target> {
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
    session.send(message, to.port, to.host);
  });
  server.bind(0, host);
  await once(server, 'listening');
  return { host, port: server.address().port };
}

const relayed = await Promise.all(
  TARGET_NAMES.map(async (name) => {
    const relay = name === 'echo' ? relayUdp : relayTcp;
    return [name, await relay(targets[name])] as const;
  }),
);
endWithParent();
answer({ targets: Object.fromEntries(relayed) });
