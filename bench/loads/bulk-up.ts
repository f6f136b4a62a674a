/** One connection that writes as fast as it can. Counts the bytes that arrived. */
import { connect } from 'node:net';
import { answer, settings } from '../support/worker.ts';
import type { LoadSettings } from './load.ts';
import { Meter } from './meter.ts';

const { target, seconds } = settings() as LoadSettings;
const chunk = Buffer.alloc(1024 * 1024);
const socket = connect({ ...target, allowHalfOpen: true });
let over = false;

const meter = new Meter(seconds, () => {
  over = true;
  // The rate is that of this moment; what is still under way counts in the total.
  const { rate } = meter.result();
  socket.end();
  socket.once('data', (length: Buffer) => {
    answer({ total: Number(length.readBigUInt64BE()), rate });
    socket.destroy();
  });
});

function write(): void {
  if (over) return;
  socket.write(chunk, () => {
    meter.total += chunk.length;
    write();
  });
}

// Two under way, so that the system always has something to send.
write();
write();
