/** Both sides send at once, a lot of it, before they have read anything; and TLS, which does just that. */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { connect as connectTls, createServer as createTlsServer } from 'node:tls';
import type { Spot } from './traffic-main.ts';
import { own } from './traffic-servers.ts';

/** What has become of the bytes on their way to the server, and to the client. */
export interface Flight {
  readonly up: 'intact' | 'damaged';
  readonly down: 'intact' | 'damaged';
}

/**
 * Sends each client so many bytes without waiting for it, reads what it sends, and at last sends the digest
 * of that, so that the client knows about both ways.
 */
export async function serveFirstFlight({ address, port }: Spot, bytes: number): Promise<void> {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    const hash = createHash('sha256');
    socket.on('error', () => undefined);
    socket.on('data', (chunk: Buffer) => hash.update(chunk));
    socket.once('end', () => socket.end(hash.digest('hex')));
    socket.write(pattern(bytes, 'server'));
  });
  own(server);
  server.listen({ host: address, port });
  await once(server, 'listening');
}

/** Sends so many bytes before it reads any. Rejects when the connection breaks. */
export async function firstFlight({ address, port }: Spot, bytes: number): Promise<Flight> {
  const socket = connect({ host: address, port, allowHalfOpen: true });
  const mine = pattern(bytes, 'client');
  socket.end(mine);
  const chunks: Buffer[] = [];
  for await (const chunk of socket) chunks.push(chunk as Buffer);
  const received = Buffer.concat(chunks);
  const told = received.subarray(bytes).toString();
  const verdict = (fine: boolean): 'intact' | 'damaged' => (fine ? 'intact' : 'damaged');
  return {
    up: verdict(told === createHash('sha256').update(mine).digest('hex')),
    down: verdict(received.subarray(0, bytes).equals(pattern(bytes, 'server'))),
  };
}

const patterns = new Map<string, Buffer>();

/** Bytes without a period that a buffer could have. */
function pattern(bytes: number, seed: string): Buffer {
  const key = `${bytes} ${seed}`;
  const made = patterns.get(key) ?? makePattern(bytes, seed);
  patterns.set(key, made);
  return made;
}

function makePattern(bytes: number, seed: string): Buffer {
  const blocks: Buffer[] = [];
  for (let n = 0, length = 0; length < bytes; n += 1, length += 32) {
    blocks.push(createHash('sha256').update(`${seed} ${n}`).digest());
  }
  return Buffer.concat(blocks, bytes);
}

/** Sends back what it gets. */
export async function serveTls(
  { address, port }: Spot,
  { key, cert }: { key: string; cert: string },
): Promise<void> {
  const server = createTlsServer({ key, cert }, (socket) => {
    socket.on('error', () => undefined);
    socket.pipe(socket);
  });
  server.on('tlsClientError', () => undefined);
  own(server);
  server.listen({ host: address, port });
  await once(server, 'listening');
}

/** Checks the server's certificate, and resolves with what comes back for a text. */
export async function askTls(
  { address, port }: Spot,
  { ca, text }: { ca: string; text: string },
): Promise<string> {
  const socket = connectTls({ host: address, port, ca, servername: 'localhost' });
  await once(socket, 'secureConnect');
  socket.end(text);
  let echo = '';
  for await (const chunk of socket) echo += String(chunk);
  return echo;
}
