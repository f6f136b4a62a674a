import { Worker } from 'node:worker_threads';
import { once } from 'node:events';
import { namedServer } from '../../../test/support/tcp-peers.ts';
import type { Abuse } from '../scenario.ts';

/** Run by a thread: opens connections as fast as it can, and resets or leaves them. */
const FLOOD = `
const { connect } = require('node:net');
const { parentPort, workerData: { host, port, ms } } = require('node:worker_threads');
let begun = 0;
const end = performance.now() + ms;
const next = () => {
  if (performance.now() > end) return;
  begun += 1;
  const socket = connect({ host, port }, () => begun % 2 ? socket.resetAndDestroy() : socket.end('x'));
  socket.on('error', () => {}).on('close', next).resume();
};
for (let at = 0; at < 100; at += 1) next();
setTimeout(() => { parentPort.postMessage(begun); process.exit(); }, ms + 500);
`;

export const floodConnections: Abuse = {
  name: 'flood-connections',
  title: 'A flood of connections to one service, latency of another',
  async run(stage, size) {
    const server = await namedServer(stage, 'x');
    const place = await stage.expose(server.port);
    const ms = size.pick(1000, 10_000);
    const worker = new Worker(FLOOD, { eval: true, workerData: { ...place, ms } });
    const [begun] = (await once(worker, 'message')) as [number];
    return { did: `${begun} connections in ${ms / 1000} s, half of them reset` };
  },
};
