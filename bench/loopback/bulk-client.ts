/** One connection that reads, or writes, as fast as it can. Counts bytes; prints a `Sample`. */
import { connect } from 'node:net';
import { printSample } from '../data/loads/own-sample.ts';
import { settings } from '../support/worker.ts';

export interface BulkSettings {
  readonly address: string;
  readonly port: number;
  readonly direction: 'down' | 'up';
  readonly seconds: number;
  /** Processes of the proxy. */
  readonly pids: readonly number[];
}

const { address, port, direction, seconds, pids } = settings() as BulkSettings;
const chunk = Buffer.alloc(1024 * 1024);
const meter = printSample(seconds, pids);
const socket = connect({
  host: address,
  port,
  onread: {
    buffer: Buffer.alloc(1024 * 1024),
    callback(length) {
      meter.add(length);
      return true;
    },
  },
});

function write(): void {
  socket.write(chunk, () => {
    meter.add(chunk.length);
    write();
  });
}

if (direction === 'up') {
  // Two under way, so that the system always has something to send.
  write();
  write();
}
