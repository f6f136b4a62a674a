/** Crowds of bad clients: raw sockets, a bounded number at once, for a bounded time. */
import { once } from 'node:events';
import { request } from 'node:http';
import { connect, type NetConnectOpts, type Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';

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

/** Gets a page as a well-behaved client does, within 5 s, and says what is wrong if it is not answered. */
export function page(place: Place, path: string): Promise<string | undefined> {
  return new Promise((resolve) => {
    const {
      path: socketPath,
      port,
      host,
    } = place as { path?: string; port?: number; host?: string };
    const asked = request({
      path,
      agent: false,
      signal: AbortSignal.timeout(5000),
      ...(socketPath === undefined ? { port, host } : { socketPath }),
    });
    const where = `${socketPath ?? port}${path}`;
    asked.on('error', (error) => resolve(`${where}: ${error.message}`));
    asked.on('response', (response) => {
      response.on('error', (error) => resolve(`${where}: ${error.message}`));
      response.on('end', () => {
        resolve(response.statusCode === 200 ? undefined : `${where}: ${response.statusCode}`);
      });
      response.resume();
    });
    asked.end();
  });
}

/** The pages of a program, each with a path that costs little. */
export function pagesOf({
  metrics,
  health,
  status,
  admin,
}: {
  readonly metrics: string;
  readonly health: string;
  readonly status: string;
  readonly admin: string;
}): readonly { readonly place: Place; readonly path: string }[] {
  return [
    { place: placeOf(metrics), path: '/metrics' },
    { place: placeOf(health), path: '/healthz' },
    { place: placeOf(status), path: '/' },
    { place: { path: admin }, path: '/v1/status' },
  ];
}

/** What is wrong with those that do not answer. */
export async function unanswered(pages: ReturnType<typeof pagesOf>): Promise<string[]> {
  const answers = await Promise.all(pages.map(({ place, path }) => page(place, path)));
  return answers.filter((answer) => answer !== undefined);
}
