/** One connection that reads as fast as it can. Counts bytes. */
import { connect } from 'node:net';
import { answer, settings } from '../support/worker.ts';
import type { LoadSettings } from './load.ts';
import { Meter } from './meter.ts';

const { target, seconds } = settings() as LoadSettings;
const meter = new Meter(seconds, () => {
  answer(meter.result());
  socket.destroy();
});
const socket = connect({
  ...target,
  onread: {
    buffer: Buffer.alloc(1024 * 1024),
    callback(length) {
      meter.total += length;
      return true;
    },
  },
});
