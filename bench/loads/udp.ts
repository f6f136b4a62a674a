/** 16 UDP clients with 4 datagrams in flight each; an answer sends the next one. */
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { DATAGRAM_BYTES } from '../peers/targets.ts';
import { answer, settings } from '../support/worker.ts';
import type { LoadSettings } from './load.ts';
import { Meter } from './meter.ts';

const CLIENTS = 16;
const IN_FLIGHT = 4;
/** A datagram without answer for so long is lost, and sent again. Milliseconds. */
const LOST_AFTER = 200;

const { target, seconds } = settings() as LoadSettings;
let over = false;
let lost = 0;

async function open(): Promise<Socket> {
  const socket = createSocket({ type: 'udp4', recvBufferSize: 1 << 20, sendBufferSize: 1 << 20 });
  socket.connect(target.port, target.host);
  await once(socket, 'connect');
  return socket;
}

/** Keeps `IN_FLIGHT` datagrams under way; the first byte of each is its slot. */
function keepBusy(socket: Socket): () => void {
  const slots = Array.from({ length: IN_FLIGHT }, (_, slot) => ({
    datagram: Buffer.alloc(DATAGRAM_BYTES, slot),
    sentAt: 0,
  }));
  const send = (slot: (typeof slots)[number]): void => {
    slot.sentAt = performance.now();
    socket.send(slot.datagram);
  };
  socket.on('message', (message) => {
    const slot = slots[message[0] ?? 0];
    if (over || slot === undefined) return;
    meter.total += 1;
    meter.sample(performance.now() - slot.sentAt);
    send(slot);
  });
  for (const slot of slots) send(slot);
  return () => {
    const late = slots.filter((slot) => performance.now() - slot.sentAt > LOST_AFTER);
    lost += late.length;
    late.forEach(send);
  };
}

const sockets = await Promise.all(Array.from({ length: CLIENTS }, open));
const meter = new Meter(seconds, () => {
  over = true;
  clearInterval(watch);
  answer(meter.result(lost));
  for (const socket of sockets) socket.close();
});
const checks = sockets.map(keepBusy);
const watch = setInterval(() => checks.forEach((check) => check()), LOST_AFTER / 2);
