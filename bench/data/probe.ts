/**
 * Runs in the client's namespace: ends once TCP and, where asked for, UDP get through to the server.
 * Settings `{address, udp, within}`.
 */
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { connect } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import { settings } from '../support/dialogue.ts';
import { PORTS } from './ports.ts';

export interface ProbeSettings {
  readonly address: string;
  readonly udp: boolean;
  /** Milliseconds. */
  readonly within: number;
}

const { address, udp, within } = settings() as ProbeSettings;

async function overTcp(): Promise<void> {
  const socket = connect({ host: address, port: PORTS.http, timeout: 1000 });
  try {
    socket.on('timeout', () => socket.destroy(new Error('silence')));
    socket.write(`GET / HTTP/1.0\r\nHost: ${address}\r\n\r\n`);
    await once(socket, 'data');
  } finally {
    socket.destroy();
  }
}

async function overUdp(): Promise<void> {
  const socket = createSocket('udp4');
  const end = AbortSignal.timeout(500);
  try {
    socket.connect(PORTS.echo, address);
    await once(socket, 'connect');
    socket.send('probe');
    await once(socket, 'message', { signal: end });
  } finally {
    socket.close();
  }
}

const end = performance.now() + within;
for (const [name, attempt] of [
  ['TCP', overTcp],
  ['UDP', overUdp],
] as const) {
  if (name === 'UDP' && !udp) continue;
  for (;;) {
    try {
      await attempt();
      break;
    } catch (error) {
      if (performance.now() > end) {
        const cause = error instanceof Error ? error.message : String(error);
        process.stderr.write(`${name} does not get through to ${address}: ${cause}\n`);
        process.exit(1);
      }
      await wait(100);
    }
  }
}
