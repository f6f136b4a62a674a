/** A program: opens connections and UDP sessions, uses each once, and keeps them until it is ended. */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { connect } from 'node:net';
import { answerRequests } from './dialogue.ts';

export const HOLDER = import.meta.filename;

export interface HoldRequest {
  readonly protocol: 'TCP' | 'UDP';
  readonly host: string;
  readonly port: number;
  readonly count: number;
  /** What has an answer. Default: `x`. */
  readonly text?: string;
}

/** Being opened at once. */
const AT_ONCE = 50;
/** How long one may take. Milliseconds. */
const WITHIN = 10_000;

async function hold({ protocol, host, port, count, text = 'x' }: HoldRequest): Promise<number> {
  const open = protocol === 'TCP' ? connection : session;
  for (let opened = 0; opened < count; opened += AT_ONCE) {
    const batch = Math.min(AT_ONCE, count - opened);
    await Promise.all(Array.from({ length: batch }, () => open(host, port, text)));
  }
  return count;
}

async function connection(host: string, port: number, text: string): Promise<void> {
  const socket = connect({ host, port });
  socket.write(text);
  await once(socket, 'data', { signal: AbortSignal.timeout(WITHIN) });
  // An interrupt now only makes the figure smaller.
  socket.on('error', () => undefined);
}

async function session(host: string, port: number, text: string): Promise<void> {
  const socket = createSocket('udp4');
  socket.connect(port, host);
  await once(socket, 'connect');
  socket.send(text);
  await once(socket, 'message', { signal: AbortSignal.timeout(WITHIN) });
  socket.on('error', () => undefined);
}

if (import.meta.main) answerRequests(hold);
