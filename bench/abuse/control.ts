/**
 * Well-behaved traffic, as a program of its own: a long connection, short ones, datagrams and health
 * probes, all at a modest rate, each byte compared. It says what was lost and how long answers took.
 */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import { get } from '../../examples/support/http.ts';
import { until } from '../../examples/support/until.ts';
import { streamBytes } from '../../test/support/torture.ts';
import { answerRequests } from '../support/dialogue.ts';
import type { Traffic } from './scenario.ts';

export interface ControlTarget {
  readonly host: string;
  readonly tcp: number;
  readonly udp: number;
  /** Such as `http://127.0.0.1:10256/healthz`. */
  readonly healthUrl: string;
}

export type ControlRequest =
  | { readonly kind: 'ready'; readonly url: string; readonly within: number }
  | ({ readonly kind: 'open' } & ControlTarget)
  /** Resolves with what was since the last one. */
  | { readonly kind: 'look' }
  /** Resolves when a fresh connection is served. */
  | ({ readonly kind: 'serves' } & ControlTarget);

/** An exchange that takes longer is lost. Milliseconds. */
const LOST_MS = 30_000;
const DATAGRAM_LOST_MS = 5000;
/** Mistakes that are named. */
const MAX_MISTAKES = 5;

let now = fresh();
const random = (most: number): number => Math.floor(Math.random() * most);

function fresh() {
  return {
    counts: {
      exchanged: 0,
      lost: 0,
      refused: 0,
      datagrams: 0,
      datagramsLost: 0,
      probes: 0,
      probesFailed: 0,
    },
    times: [] as number[],
    mistakes: [] as string[],
  };
}

function look(): Traffic {
  const { counts, times, mistakes } = now;
  now = fresh();
  const sorted = times.sort((a, b) => a - b);
  return { ...counts, mistakes, p99: sorted[Math.floor(sorted.length * 0.99)] ?? 0 };
}

function mistake(what: string, error: unknown): void {
  const { mistakes } = now;
  const text = error instanceof Error ? error.message : String(error);
  if (mistakes.length < MAX_MISTAKES) mistakes.push(`${what}: ${text}`);
}

/** Sends bytes and resolves when the same have come back. */
async function exchange(socket: Socket, bytes: Buffer): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  let received = 0;
  const onData = (chunk: Buffer): void => {
    if (!chunk.equals(bytes.subarray(received, received + chunk.length))) {
      reject(new Error('other bytes than were sent'));
    }
    received += chunk.length;
    if (received >= bytes.length) resolve();
  };
  const onClose = (): void => reject(new Error('cut'));
  const timer = setTimeout(() => reject(new Error('no answer')), LOST_MS);
  socket.on('data', onData).once('close', onClose);
  if (socket.closed) onClose();
  else socket.write(bytes);
  await promise.finally(() => {
    clearTimeout(timer);
    socket.off('data', onData).off('close', onClose);
  });
}

async function longConnection({ host, tcp }: ControlTarget): Promise<void> {
  for (let position = 0; ; await wait(100)) {
    const socket = connect({ host, port: tcp, noDelay: true });
    socket.on('error', () => undefined);
    try {
      for (; ; await wait(2)) {
        const bytes = streamBytes(1, position, 1 + random(4096));
        const begun = performance.now();
        await exchange(socket, bytes);
        now.times.push(performance.now() - begun);
        now.counts.exchanged += 1;
        position = (position + bytes.length) % 1_000_000;
      }
    } catch (error) {
      now.counts.lost += 1;
      mistake('long connection', error);
    } finally {
      socket.destroy();
    }
  }
}

async function shortConnection({ host, tcp }: ControlTarget): Promise<void> {
  const socket = connect({ host, port: tcp, noDelay: true });
  socket.on('error', () => undefined);
  try {
    await exchange(socket, streamBytes(2, random(1000), 64));
  } finally {
    socket.destroy();
  }
}

async function shortConnections(target: ControlTarget): Promise<void> {
  for (; ; await wait(20)) {
    try {
      await shortConnection(target);
      now.counts.exchanged += 1;
    } catch (error) {
      now.counts.refused += 1;
      mistake('short connection', error);
    }
  }
}

async function datagrams({ host, udp }: ControlTarget): Promise<void> {
  const socket = createSocket('udp4');
  socket.on('error', () => undefined);
  socket.connect(udp, host);
  await once(socket, 'connect');
  for (let number = 0; ; number += 1, await wait(5)) {
    const bytes = streamBytes(3, number % 1_000_000, 1 + random(1400));
    const answered = await new Promise<boolean>((resolve) => {
      const onMessage = (message: Buffer): void => {
        if (message.equals(bytes)) done(true);
      };
      const timer = setTimeout(() => done(false), DATAGRAM_LOST_MS);
      const done = (is: boolean): void => {
        clearTimeout(timer);
        socket.off('message', onMessage);
        resolve(is);
      };
      socket.on('message', onMessage);
      socket.send(bytes);
    });
    now.counts.datagrams += 1;
    if (!answered) now.counts.datagramsLost += 1;
  }
}

async function probes({ healthUrl }: ControlTarget): Promise<void> {
  for (; ; await wait(200)) {
    now.counts.probes += 1;
    try {
      const { status } = await get(healthUrl);
      if (status !== 200) throw new Error(`status ${status}`);
    } catch (error) {
      now.counts.probesFailed += 1;
      mistake('probe', error);
    }
  }
}

answerRequests(async (request: ControlRequest): Promise<unknown> => {
  if (request.kind === 'look') return look();
  if (request.kind === 'ready') {
    const isReady = async () => ((await get(request.url)).status === 200 ? true : undefined);
    return until('the proxy is ready', isReady, { within: request.within });
  }
  if (request.kind === 'serves') {
    return until('control traffic is served', () => shortConnection(request).then(() => true));
  }
  for (const traffic of [longConnection, shortConnections, datagrams, probes]) {
    void traffic(request);
  }
  return true;
});
