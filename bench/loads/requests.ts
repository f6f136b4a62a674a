/** 64 connections that each send a small request and wait for its answer, again and again. */
import { connect } from 'node:net';
import { REQUEST_BYTES, RESPONSE_BYTES } from '../peers/targets.ts';
import { answer, settings } from '../support/worker.ts';
import type { LoadSettings } from './load.ts';
import { Meter } from './meter.ts';

const CONNECTIONS = 64;

const { target, seconds } = settings() as LoadSettings;
const request = Buffer.alloc(REQUEST_BYTES, 'q');
let over = false;
const meter = new Meter(seconds, () => {
  over = true;
  answer(meter.result());
  for (const socket of sockets) socket.destroy();
});

function open(): ReturnType<typeof connect> {
  let pending = 0;
  let sentAt = 0;
  const send = (): void => {
    pending = RESPONSE_BYTES;
    sentAt = performance.now();
    socket.write(request);
  };
  const socket = connect({
    ...target,
    noDelay: true,
    onread: {
      buffer: Buffer.alloc(4096),
      callback(length) {
        pending -= length;
        if (pending > 0 || over) return true;
        meter.total += 1;
        meter.sample(performance.now() - sentAt);
        send();
        return true;
      },
    },
  });
  socket.once('connect', send);
  return socket;
}

const sockets = Array.from({ length: CONNECTIONS }, open);
