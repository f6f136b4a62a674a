/** Servers that can be stopped, as pods are, and clients of all kinds: part of agent.ts. Addresses are texts: `10.0.0.1:80`. */
import { createHash } from 'node:crypto';
import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, type Server, type Socket, connect } from 'node:net';
import { connect as connectTls, createServer as createTlsServer } from 'node:tls';

const servers = new Set<Server>();
const sockets = new Set<Socket>();
const udpSockets = new Set<UdpSocket>();
let ended = 0;

/** Answers TCP and UDP with a name. */
async function respond(place: string, name: string): Promise<void> {
  const { address, port } = spot(place);
  await listen(place, (socket) => {
    socket.on('data', () => socket.write(name));
  });
  const udp = createSocket(address.includes(':') ? 'udp6' : 'udp4');
  udp.on('error', () => undefined);
  udp.on('message', (_, from) => udp.send(name, from.port, from.address));
  udpSockets.add(udp);
  udp.bind(port, address);
  await once(udp, 'listening');
}

/** Greets every client. `ends`: whether it closes a connection when the client does. */
function greet(place: string, { ends }: { ends: boolean }): Promise<void> {
  return listen(place, (socket) => {
    socket.resume();
    socket.once('end', () => {
      ended += 1;
      if (ends) socket.end();
    });
    socket.write('hello');
  });
}

/** Ends everything at once, as when a pod is killed. */
async function stopServing(): Promise<void> {
  ended = 0;
  for (const socket of sockets) socket.resetAndDestroy();
  for (const udp of udpSockets) udp.close();
  udpSockets.clear();
  await Promise.all(
    [...servers].map(async (server) => {
      const closed = once(server, 'close');
      server.close();
      await closed;
    }),
  );
  servers.clear();
}

async function listen(place: string, serve: (socket: Socket) => void): Promise<void> {
  const { address, port } = spot(place);
  const server = createServer({ allowHalfOpen: true }, serve);
  own(server);
  server.listen({ host: address, port, backlog: 1024 });
  await once(server, 'listening');
}

/** Has `stopServing` end a server with its connections. */
function own(server: Server): void {
  servers.add(server);
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.once('close', () => sockets.delete(socket));
  });
}

const connections = new Set<Socket>();

/** What became of the connections: a greeting, an error in the system's words, or `silence`. */
type Outcomes = Record<string, number>;

/** Opens connections one after another; greeted ones stay open. `waitMs`: for each greeting. */
async function connectMany(
  place: string,
  {
    count,
    waitMs = 5000,
    after = 'stay',
  }: { count: number; waitMs?: number; after?: 'stay' | 'half-close' },
): Promise<Outcomes> {
  const outcomes: Outcomes = {};
  for (let n = 0; n < count; n += 1) {
    const outcome = await connectOne(place, waitMs, after);
    outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
  }
  return outcomes;
}

async function connectOne(
  place: string,
  waitMs: number,
  after: 'stay' | 'half-close',
): Promise<string> {
  const { address, port } = spot(place);
  const { promise, resolve } = Promise.withResolvers<string>();
  const socket = connect({ host: address, port, allowHalfOpen: true });
  connections.add(socket);
  socket.once('close', () => {
    connections.delete(socket);
    resolve('closed');
  });
  socket.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
  socket.once('data', () => resolve('greeted'));
  const timer = setTimeout(() => resolve('silence'), waitMs);
  const outcome = await promise;
  clearTimeout(timer);
  if (outcome !== 'greeted') socket.destroy();
  else if (after === 'half-close') socket.end();
  return outcome;
}

/** Closes whatever is open. */
function closeClients(): void {
  for (const socket of connections) socket.destroy();
}

/** Both sides send at once, a lot of it, before they have read anything; and TLS, which does just that. */

/** What has become of the bytes on their way to the server, and to the client. */
export interface Flight {
  readonly up: 'intact' | 'damaged';
  readonly down: 'intact' | 'damaged';
}

/**
 * Sends each client so many bytes without waiting for it, reads what it sends, and at last sends the digest
 * of that, so that the client knows about both ways.
 */
async function serveFirstFlight(place: string, bytes: number): Promise<void> {
  const { address, port } = spot(place);
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
async function firstFlight(place: string, bytes: number): Promise<Flight> {
  const { address, port } = spot(place);
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
async function serveTls(
  place: string,
  { key, cert }: { key: string; cert: string },
): Promise<void> {
  const { address, port } = spot(place);
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
async function askTls(place: string, { ca, text }: { ca: string; text: string }): Promise<string> {
  const { address, port } = spot(place);
  const socket = connectTls({ host: address, port, ca, servername: 'localhost' });
  await once(socket, 'secureConnect');
  socket.end(text);
  let echo = '';
  for await (const chunk of socket) echo += String(chunk);
  return echo;
}

function spot(place: string): { readonly address: string; readonly port: number } {
  const at = place.lastIndexOf(':');
  return {
    address: place.slice(0, at).replace(/^\[|\]$/g, ''),
    port: Number(place.slice(at + 1)),
  };
}

export const peers = {
  respond,
  greet,
  /** How many clients have ended their connections. */
  ended: () => ended,
  stopServing,
  connectMany,
  closeClients,
  serveFirstFlight,
  firstFlight,
  serveTls,
  askTls,
};
