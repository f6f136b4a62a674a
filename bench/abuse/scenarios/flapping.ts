import { setTimeout as wait } from 'node:timers/promises';
import { tcpServer } from '../../../test/support/tcp-peers.ts';
import { bad, event, repeatFor } from '../crowd.ts';
import type { Abuse } from '../scenario.ts';

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
