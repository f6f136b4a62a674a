/** Runs in the client's namespace: ends once TCP and, where asked for, UDP get through to the server. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { openUdpClient } from '../../examples/support/udp.ts';
import { until } from '../../examples/support/until.ts';
import { settings } from '../support/dialogue.ts';
import { PORTS } from './ports.ts';

export interface ProbeSettings {
  readonly address: string;
  readonly udp: boolean;
  /** Milliseconds. */
  readonly within: number;
}

const { address, udp, within } = settings() as ProbeSettings;

async function overTcp(): Promise<true> {
  const socket = connect({ host: address, port: PORTS.http, timeout: 1000 });
  try {
    socket.on('timeout', () => socket.destroy(new Error('silence')));
    socket.write(`GET / HTTP/1.0\r\nHost: ${address}\r\n\r\n`);
    await once(socket, 'data');
    return true;
  } finally {
    socket.destroy();
  }
}

async function overUdp(): Promise<true> {
  const client = await openUdpClient(address, PORTS.echo);
  await client.ask('probe').finally(() => client.close());
  return true;
}

try {
  await until('TCP', overTcp, { within, every: 100 });
  if (udp) await until('UDP', overUdp, { within, every: 100 });
} catch (error) {
  const { message, cause } = error as Error;
  process.stderr.write(`${message}: ${address} is not reached: ${String(cause)}\n`);
  process.exit(1);
}
