/** 16 clients that each connect, ask once, wait for the answer and the end, and connect again. */
import { connect, type Socket } from 'node:net';
import { REQUEST_BYTES } from '../peers/targets.ts';
import { answer, settings } from '../support/worker.ts';
import type { LoadSettings } from './load.ts';
import { Meter } from './meter.ts';

const CLIENTS = 16;

const { target, seconds } = settings() as LoadSettings;
const request = Buffer.alloc(REQUEST_BYTES, 'q');
const open = new Set<Socket>();
let over = false;
let failed = 0;
const meter = new Meter(seconds, () => {
  over = true;
  answer(meter.result(failed));
  for (const socket of open) socket.destroy();
});

function client(): void {
  if (over) return;
  const begin = performance.now();
  const socket = connect({ ...target, noDelay: true });
  let length = 0;
  open.add(socket);
  socket.on('data', (chunk: Buffer) => {
    length += chunk.length;
  });
  socket.on('error', () => {
    failed += 1;
  });
  socket.on('close', () => {
    open.delete(socket);
    if (over) return;
    if (length > 0) {
      meter.total += 1;
      meter.sample(performance.now() - begin);
    }
    client();
  });
  socket.write(request);
}

for (let i = 0; i < CLIENTS; i += 1) client();
