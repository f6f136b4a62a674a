import { setTimeout as wait } from 'node:timers/promises';
import { tcpServer } from '../../../test/support/tcp-peers.ts';
import { crowd, destroyAll } from '../crowd.ts';
import type { Abuse } from '../scenario.ts';

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
