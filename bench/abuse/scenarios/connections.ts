/** Connections: streams of bytes, clients and endpoints that do not play along, floods. */
import { setTimeout as wait } from 'node:timers/promises';
import { blackHole, namedServer, tcpServer } from '../../../test/support/tcp-peers.ts';
import { Torture } from '../../../test/support/torture.ts';
import { bad, crowd, destroyAll, event, flood, repeatFor } from '../crowd.ts';
import type { Abuse } from '../scenario.ts';

/** Every byte is a function of its place: what is lost, doubled or out of order is found. */
export const streams: Abuse = {
  name: 'streams',
  title: 'TCP: random chunks, stalls, resets, half-closes',
  memoryMiB: 400,
  async run(stage, size) {
    const torture = new Torture(Math.floor(Math.random() * 1e9));
    const endpoint = await torture.endpoint(stage);
    const { host, port } = await stage.expose(endpoint.port);
    await repeatFor(size.pick(1000, 10_000), 24, () => torture.client(port, host));
    await torture.over();
    const { connections, bytes, mistakes } = torture;
    return { did: `${connections} connections, ${(bytes / 1e6).toFixed(0)} MB compared`, mistakes };
  },
};

/** Twice as many clients as there are descriptors: they wait or are refused; existing connections continue. */
function fewDescriptors(limit: number): Abuse {
  return {
    name: `descriptors-${limit}`,
    title: `Descriptor exhaustion, ulimit ${limit}`,
    needs: ['prlimit'],
    short: limit < 1000,
    // Where there is no descriptor left, a new client is reset.
    allows: 'refusals',
    stage: () => ({
      inside: ['prlimit', `--nofile=${limit}:${limit}`],
      args: [`--reserved-descriptors=${limit / 4}`],
    }),
    async run(stage, size) {
      const { host, tcp: port } = stage.target;
      const rounds = size.pick(1, 2);
      for (let round = 0; round < rounds; round += 1) {
        // The control service has to stay free: these come in at another listener.
        const other = await stage.expose(port, [stage.place.endpointIp]);
        const clients = await crowd(limit * 2, { host: other.host, port: other.port });
        for (const client of clients) client.write('x');
        await wait(size.pick(300, 2000));
        destroyAll(clients);
        await wait(size.pick(300, 1000));
      }
      await stage.opens(host, port);
      return { did: `${rounds} times ${limit * 2} clients` };
    },
  };
}

export const fewDescriptors256 = fewDescriptors(256);
export const fewDescriptors1024 = fewDescriptors(1024);

const CHUNK = Buffer.alloc(256 * 1024, 'x');

/** The endpoint sends without end, and its clients read nothing. */
export const neverReading: Abuse = {
  name: 'never-reading',
  title: 'Clients that never read',
  memoryMiB: 400,
  async run(stage, size) {
    const server = await tcpServer(stage, (socket) => {
      const fill = (): void => {
        while (!socket.destroyed && socket.write(CHUNK));
      };
      socket.on('drain', fill);
      fill();
    });
    const place = await stage.expose(server.port);
    const count = size.pick(150, 1000);
    const clients = await crowd(count, place, (socket) => socket.pause());
    await wait(size.pick(700, 6000));
    const open = clients.filter((socket) => !socket.destroyed).length;
    destroyAll(clients);
    return {
      did: `${count} clients of an endpoint that sends without end`,
      mistakes: open < count ? [`${count - open} were cut`] : [],
    };
  },
};

/** One half of each connection is closed, and the other side never closes its own. */
export const neverEnding: Abuse = {
  name: 'never-ending',
  short: false,
  title: 'Half-closed connections that never end',
  memoryMiB: 400,
  async run(stage, size) {
    let number = 0;
    const server = await tcpServer(stage, (socket) => {
      number += 1;
      if (number % 2 === 0) socket.end('that was all');
      socket.resume();
    });
    const place = await stage.expose(server.port);
    const count = size.pick(200, 2000);
    const clients = await crowd(count, place, (socket) => {
      if (Math.random() < 0.5) socket.end('that was all');
      else socket.write('more to come');
      socket.resume();
    });
    await wait(size.pick(500, 5000));
    destroyAll(clients);
    return { did: `${count} connections, of which one half is closed, or none` };
  },
};

/** Opens connections as fast as it can, and resets or leaves them. */
const FLOOD = `() => {
  const end = begun % 2 === 0 ? () => socket.end('x') : () => socket.resetAndDestroy();
  const socket = require('node:net').connect({ host, port }, end);
  socket.on('error', () => {}).on('close', next).resume();
}`;

export const floodConnections: Abuse = {
  name: 'flood-connections',
  title: 'A flood of connections to one service, latency of another',
  async run(stage, size) {
    const server = await namedServer(stage, 'x');
    const place = await stage.expose(server.port);
    const ms = size.pick(1000, 10_000);
    const begun = await flood(FLOOD, { ...place, ms }, 100);
    return { did: `${begun} connections in ${ms / 1000} s, half of them reset` };
  },
};

export const blackHoles: Abuse = {
  name: 'black-holes',
  short: false,
  title: 'Endpoints that answer nothing',
  memoryMiB: 300,
  async run(stage, size) {
    const hole = await blackHole(stage);
    const place = await stage.expose(hole.port);
    const count = size.pick(200, 2000);
    const clients = await crowd(count, place, (socket) => socket.write('anybody?'));
    await wait(size.pick(500, 5000));
    destroyAll(clients);
    return { did: `${count} clients of an endpoint that drops what it gets` };
  },
};

const STEADY = '127.0.0.1';
/** A closed port. */
const REFUSING = ['127.0.0.2', '127.0.0.3'];

/** Endpoints that refuse come and go; each client has to be served by the one that does not. */
export const flapping: Abuse = {
  name: 'flapping',
  title: 'Endpoints that refuse and come and go',
  async run(stage, size) {
    const answer = 'served';
    const server = await tcpServer(stage, (socket) => socket.end(answer).resume(), STEADY);
    const place = await stage.expose(server.port, [STEADY]);
    const mistakes: string[] = [];
    const ms = size.pick(1000, 10_000);
    const changes = repeatFor(ms, 1, async (number) => {
      stage.setEndpoints([STEADY, ...REFUSING.slice(0, number % (REFUSING.length + 1))]);
      await wait(100);
    });
    const clients = repeatFor(ms, 8, async () => {
      let got = '';
      const socket = bad(place);
      socket.setEncoding('latin1').on('data', (text) => (got += String(text)));
      socket.end();
      socket.setTimeout(10_000, () => socket.destroy());
      await event(socket, 'close');
      if (got !== answer) mistakes.push(`a client got ${JSON.stringify(got)}`);
    });
    return { did: `${await changes} changes under ${await clients} connections`, mistakes };
  },
};
