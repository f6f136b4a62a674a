/** Runs on a machine of a test network: answers clients, and is a client itself. */
import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { serveLines } from './machine.ts';

/** What came back: a text, the system's word for an error, `closed`, or `silence`. */
export type Answer = string;

/** Where a server is, as text: `10.0.0.1:80` or `[fd00::1]:53/UDP`. */
type Place = string;

/** A connection, or a UDP socket. */
interface Flow {
  /** Sends once and reports what came back. */
  say(waitMs: number): Promise<Answer>;
  close(): void;
}

const flows = new Map<string, Flow>();
/** Servers that do not stay, and their connections. */
const servers = new Set<Server | UdpSocket>();
const connections = new Set<Socket>();

const handlers = {
  serve,
  stopServing,
  async ask(place: Place, { source, waitMs }: { source?: string; waitMs: number }) {
    const flow = await openFlow(place, source, waitMs);
    if (typeof flow === 'string') return flow;
    const answer = await flow.say(waitMs);
    flow.close();
    return answer;
  },
  /** Opens a connection or a socket that stays. */
  async open(name: string, place: Place) {
    const flow = await openFlow(place, undefined, 2000);
    if (typeof flow === 'string') return flow;
    flows.set(name, flow);
    return 'open';
  },
  say: (name: string, waitMs: number) => flows.get(name)?.say(waitMs) ?? 'no such flow',
  close(name: string) {
    flows.get(name)?.close();
    flows.delete(name);
  },
  /** Closes what was opened, and servers that do not stay. */
  async reset() {
    for (const flow of flows.values()) flow.close();
    flows.clear();
    await stopServing();
  },
};

export type Agent = typeof handlers;

serveLines(handlers);

/** Answers every client with `name` and the address that the client seems to have. `stays`: until the process ends. */
async function serve(place: Place, name: string, stays = false): Promise<void> {
  const { protocol, address, port } = readPlace(place);
  const ipv6Only = address.includes(':');
  let server: Server | UdpSocket;
  if (protocol === 'TCP') {
    server = createServer((socket) => {
      connections.add(socket);
      socket.once('close', () => connections.delete(socket)).on('error', () => undefined);
      socket.on('data', () => socket.write(`${name} ${socket.remoteAddress ?? ''}`));
    });
    server.listen({ host: address, port, ipv6Only, backlog: 1024 });
  } else {
    const socket = createSocket({ type: ipv6Only ? 'udp6' : 'udp4', ipv6Only });
    socket
      .on('error', () => undefined)
      .on('message', (_, remote) => {
        socket.send(`${name} ${remote.address}`, remote.port, remote.address);
      });
    server = socket.bind(port, address);
  }
  await once(server, 'listening');
  if (!stays) servers.add(server);
}

/** Ends everything that does not stay at once, as when a pod is killed. */
async function stopServing(): Promise<void> {
  for (const socket of connections) socket.resetAndDestroy();
  const closed = [...servers].map(async (server) => {
    server.close();
    await once(server, 'close');
  });
  servers.clear();
  await Promise.all(closed);
}

function readPlace(text: Place) {
  const [place = '', protocol = 'TCP'] = text.split('/');
  const at = place.lastIndexOf(':');
  const address = place.slice(0, at).replace(/^\[|\]$/g, '');
  return { address, port: Number(place.slice(at + 1)), protocol };
}

async function openFlow(
  place: Place,
  source: string | undefined,
  waitMs: number,
): Promise<Flow | Answer> {
  const { protocol, address, port } = readPlace(place);
  return protocol === 'TCP'
    ? openTcp(address, port, source, waitMs)
    : openUdp(address, port, source).catch(codeOf);
}

const codeOf = (error: NodeJS.ErrnoException): Answer => error.code ?? error.message;

async function openTcp(
  host: string,
  port: number,
  source: string | undefined,
  waitMs: number,
): Promise<Flow | Answer> {
  const socket = connect({ host, port, ...(source !== undefined && { localAddress: source }) });
  socket.on('error', () => undefined);
  const outcome = await nextOf(socket, 'connect', waitMs);
  if (outcome === 'silence') socket.destroy();
  if (outcome !== 'connect') return outcome;
  return {
    async say(wait) {
      if (socket.destroyed) return 'closed';
      socket.write('hello');
      return nextOf(socket, 'data', wait);
    },
    close: () => socket.destroy(),
  };
}

/** What comes first: the event, an error, the end, or the end of the time. */
function nextOf(socket: Socket, event: 'connect' | 'data', waitMs: number): Promise<Answer> {
  const { promise, resolve } = Promise.withResolvers<Answer>();
  const timer = setTimeout(() => resolve('silence'), waitMs);
  socket.once(event, (data?: Buffer) => resolve(data?.toString() ?? event));
  socket.once('close', () => resolve('closed'));
  socket.once('error', (error) => resolve(codeOf(error)));
  return promise.finally(() => {
    clearTimeout(timer);
    socket.removeAllListeners(event).removeAllListeners('close');
  });
}

/** Rejects with the system's error. */
async function openUdp(address: string, port: number, source: string | undefined): Promise<Flow> {
  const socket = createSocket(address.includes(':') ? 'udp6' : 'udp4');
  let answered: (answer: Answer) => void = () => undefined;
  socket.on('message', (message) => answered(message.toString()));
  socket.on('error', (error) => answered(codeOf(error)));
  if (source !== undefined) await once(socket.bind(0, source), 'listening');
  socket.connect(port, address);
  await once(socket, 'connect');
  return {
    say(waitMs) {
      const { promise, resolve } = Promise.withResolvers<Answer>();
      answered = resolve;
      const timer = setTimeout(() => resolve('silence'), waitMs);
      socket.send('hello', (error) => {
        if (error !== null) resolve(codeOf(error));
      });
      return promise.finally(() => clearTimeout(timer));
    },
    close: () => socket.close(),
  };
}
