import { setTimeout as wait } from 'node:timers/promises';
import { tcpServer } from '../../../test/support/tcp-peers.ts';
import { crowd, destroyAll } from '../crowd.ts';
import type { Abuse } from '../scenario.ts';

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
