/** Crowds of bad clients: raw sockets, a bounded number at once, for a bounded time. */
import { once } from 'node:events';
import { connect, type NetConnectOpts, type Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { get } from '../../examples/support/http.ts';
import type { Stage } from './stage.ts';

export type Place = Extract<NetConnectOpts, { path: string } | { port: number }>;

/** The target of a URL. */
export function placeOf(url: string): Place {
  const { hostname, port } = new URL(url);
  return { host: hostname, port: Number(port) };
}

/** A socket whose errors are of no interest. */
export function bad(place: Place, onOpen: (socket: Socket) => void = () => undefined): Socket {
  const socket = connect({ ...place, allowHalfOpen: true });
  socket.on('error', () => socket.destroy());
  socket.on('connect', () => onOpen(socket));
  return socket;
}

/** Opens so many, some at a time. Those that were refused are among them, destroyed. */
export async function crowd(
  count: number,
  place: Place,
  onOpen?: (socket: Socket) => void,
): Promise<Socket[]> {
  const sockets: Socket[] = [];
  for (let left = count; left > 0; left -= 50) {
    const batch = Array.from({ length: Math.min(left, 50) }, () => bad(place, onOpen));
    sockets.push(...batch);
    const settled = batch.map((socket) =>
      Promise.race([event(socket, 'connect'), event(socket, 'close')]),
    );
    // Where a queue is full, the rest comes in while the next ones try.
    await Promise.race([Promise.all(settled), wait(500)]);
  }
  return sockets;
}

export async function event(socket: Socket, name: string): Promise<void> {
  await once(socket, name).catch(() => undefined);
}

export function destroyAll(sockets: readonly Socket[]): void {
  for (const socket of sockets) socket.destroy();
}

/** Repeats a step in several chains until the time is over; resolves with how often it was done. */
export async function repeatFor(
  ms: number,
  atOnce: number,
  step: (number: number) => Promise<void> | void,
): Promise<number> {
  const end = performance.now() + ms;
  let number = 0;
  const chain = async (): Promise<void> => {
    while (performance.now() < end) {
      number += 1;
      await step(number);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, chain));
  return number;
}

/** The pages of a program, by URL, each with a path that costs little, and what connects to it. */
export function pagesOf({ metrics, health, status, admin }: Stage['pages']) {
  const page = (url: string) => ({ place: placeOf(url), url, options: {} });
  const socket = { place: { path: admin }, url: 'http://localhost/v1/status' };
  return [page(metrics), page(health), page(status), { ...socket, options: { socketPath: admin } }];
}

/** What is wrong with those that do not answer a well-behaved client. */
export async function unanswered(pages: ReturnType<typeof pagesOf>): Promise<string[]> {
  const answers = await Promise.all(
    pages.map(async ({ url, options }) => {
      const wrong = await get(url, options).then(({ status }) => status !== 200 && status, String);
      return wrong === false ? [] : [`${url}: ${wrong}`];
    }),
  );
  return answers.flat();
}

/**
 * Runs a flood in a thread until its time is over. `step` is the source of a function that does one thing at `host` and
 * `port`, and calls `next` for the next one; `begun` counts them. Resolves with that count.
 */
export async function flood(
  step: string,
  workerData: { readonly host: string; readonly port: number; readonly ms: number },
  atOnce: number,
): Promise<number> {
  const source = `
    const { parentPort, workerData: { host, port, ms } } = require('node:worker_threads');
    let begun = 0;
    const end = performance.now() + ms;
    const next = () => {
      if (performance.now() > end) return;
      begun += 1;
      (${step})();
    };
    for (let at = 0; at < ${atOnce}; at += 1) next();
    setTimeout(() => { parentPort.postMessage(begun); process.exit(); }, ms + 500);`;
  const [begun] = (await once(new Worker(source, { eval: true, workerData }), 'message')) as [
    number,
  ];
  return begun;
}
