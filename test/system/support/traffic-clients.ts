/** Clients that come in numbers and stay. */
import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { connect, type Socket } from 'node:net';
import type { Spot } from './traffic-main.ts';

const connections = new Set<Socket>();
const flows: UdpSocket[] = [];

/** What became of the connections: a greeting, an error in the system's words, or `silence`. */
export type Outcomes = Record<string, number>;

/** Opens connections one after another; greeted ones stay open. */
export async function connectMany(
  spot: Spot,
  options: { count: number; waitMs: number; after: 'stay' | 'half-close' },
): Promise<Outcomes> {
  const outcomes: Outcomes = {};
  for (let n = 0; n < options.count; n += 1) {
    const outcome = await connectOne(spot, options);
    outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
  }
  return outcomes;
}

async function connectOne(
  { address, port }: Spot,
  { waitMs, after }: { waitMs: number; after: 'stay' | 'half-close' },
): Promise<string> {
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
export function closeClients(): void {
  for (const socket of connections) socket.destroy();
  for (const flow of flows) flow.close();
  flows.length = 0;
}

/** Opens sockets one after another and sends once on each; resolves with how many got an answer. */
export async function openFlows({ address, port }: Spot, count: number): Promise<number> {
  let answered = 0;
  for (let n = 0; n < count; n += 1) {
    const socket = createSocket(address.includes(':') ? 'udp6' : 'udp4');
    socket.on('error', () => undefined);
    const connected = Promise.withResolvers<void>();
    socket.connect(port, address, () => connected.resolve());
    await connected.promise;
    flows.push(socket);
    if ((await sayFlow(flows.length - 1, 5000)) !== 'silence') answered += 1;
  }
  return answered;
}

/** Sends once on a socket and resolves with the answer. */
export async function sayFlow(index: number, waitMs: number): Promise<string> {
  const socket = flows[index];
  if (socket === undefined) return 'no such flow';
  const { promise, resolve } = Promise.withResolvers<string>();
  const answer = (message: Buffer): void => resolve(message.toString());
  const fail = (error: NodeJS.ErrnoException): void => resolve(error.code ?? error.message);
  socket.once('message', answer).once('error', fail);
  const timer = setTimeout(() => resolve('silence'), waitMs);
  socket.send('hello', (error) => {
    if (error !== null) fail(error);
  });
  const outcome = await promise;
  clearTimeout(timer);
  socket.off('message', answer).off('error', fail);
  return outcome;
}
