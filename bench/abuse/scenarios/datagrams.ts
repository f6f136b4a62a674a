import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { setTimeout as wait } from 'node:timers/promises';
import { repeatFor } from '../crowd.ts';
import { streamBytes } from '../../../test/support/torture.ts';
import type { Abuse } from '../scenario.ts';

const CLIENTS = 40;
/** The largest that IPv4 carries. */
const MOST = 65_507;

/** Each answer has to be what this very client has sent. */
export const datagrams: Abuse = {
  name: 'datagrams',
  title: 'UDP: 1 to 65,507 bytes, from clients that come and go',
  async run(stage, size) {
    const { host, udp } = stage.target;
    const mistakes: string[] = [];
    const totals = { sent: 0, came: 0 };
    await repeatFor(size.pick(1000, 10_000), CLIENTS, async (client) => {
      const socket = createSocket('udp4');
      const sent = new Map<number, Buffer>();
      socket.on('error', () => undefined);
      socket.on('message', (message) => {
        totals.came += 1;
        const expected = message.length < 4 ? undefined : sent.get(message.readUInt32BE());
        if (expected?.equals(message) !== true) mistakes.push(`${message.length} foreign bytes`);
      });
      socket.connect(udp, host);
      await once(socket, 'connect');
      for (let number = 0; number < 20; number += 1) {
        const length = Math.random() < 0.1 ? MOST : 4 + Math.floor(Math.random() * 3000);
        const bytes = Buffer.from(streamBytes(client, number, length));
        const id = client * 100 + number;
        bytes.writeUInt32BE(id);
        sent.set(id, bytes);
        totals.sent += 1;
        socket.send(bytes, () => undefined);
        await wait(5);
      }
      await wait(100);
      socket.close();
    });
    // The kernel may drop what it has no room for; all of it would be something else.
    if (totals.came < totals.sent / 2) mistakes.push(`${totals.came} of ${totals.sent} came back`);
    return { did: `${totals.sent} datagrams, ${totals.came} answers compared`, mistakes };
  },
};
