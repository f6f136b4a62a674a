import { setTimeout as wait } from 'node:timers/promises';
import { blackHole } from '../../../test/support/tcp-peers.ts';
import { crowd, destroyAll } from '../crowd.ts';
import type { Abuse } from '../scenario.ts';

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
