/** Datagrams, and floods of them. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { setTimeout as wait } from 'node:timers/promises';
import { streamBytes } from '../../../test/support/torture.ts';
import { flood, repeatFor } from '../crowd.ts';
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

/** Sends datagrams from ever new sockets, so that each is a session. */
const FLOOD = `() => {
  const socket = require('node:dgram').createSocket('udp4').on('error', () => {});
  for (let copy = 0; copy < 5; copy += 1) socket.send('flood', port, host, () => {});
  setTimeout(() => { socket.close(); next(); }, 5);
}`;
const SESSIONS = 1000;

export const floodDatagrams: Abuse = {
  name: 'flood-datagrams',
  title: 'A flood of UDP sessions to one service, beyond the cap',
  // The cap counts for all services: idle sessions of the flood make room, not one that is in use.
  stage: () => ({ args: [`--max-udp-sessions=${SESSIONS}`] }),
  async run(stage, size) {
    const silent = createSocket('udp4').bind(0, '127.0.0.1');
    await once(silent, 'listening');
    stage.teardown(() => silent.close());
    const { port: targetPort } = silent.address();
    const place = await stage.expose(targetPort, ['127.0.0.1'], 'UDP');
    const ms = size.pick(1000, 10_000);
    const sent = 5 * (await flood(FLOOD, { ...place, ms }, 50));
    return { did: `${sent} datagrams in ${ms / 1000} s, each 5 a session; at most ${SESSIONS}` };
  },
};
