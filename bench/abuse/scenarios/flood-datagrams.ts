import { Worker } from 'node:worker_threads';
import { once } from 'node:events';
import { createSocket } from 'node:dgram';
import type { Abuse } from '../scenario.ts';

/** Run by a thread: sends datagrams from ever new sockets, so that each is a session. */
const FLOOD = `
const { createSocket } = require('node:dgram');
const { parentPort, workerData: { host, port, ms } } = require('node:worker_threads');
let sent = 0;
const end = performance.now() + ms;
const next = () => {
  if (performance.now() > end) return;
  const socket = createSocket('udp4');
  socket.on('error', () => {});
  for (let copy = 0; copy < 5; copy += 1) socket.send('flood', port, host, () => {});
  sent += 5;
  setTimeout(() => { socket.close(); next(); }, 5);
};
for (let at = 0; at < 50; at += 1) next();
setTimeout(() => { parentPort.postMessage(sent); process.exit(); }, ms + 500);
`;
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
    const worker = new Worker(FLOOD, { eval: true, workerData: { ...place, ms } });
    const [sent] = (await once(worker, 'message')) as [number];
    return { did: `${sent} datagrams in ${ms / 1000} s, each 5 a session; at most ${SESSIONS}` };
  },
};
