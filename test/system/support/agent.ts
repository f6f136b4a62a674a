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
  /** UDP: sends once more, as its clients do. A new address may cost the kernel a datagram. */
  repeat?(): void;
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
    const again = setInterval(() => flow.repeat?.(), 1000);
    const answer = await flow.say(waitMs);
    clearInterval(again);
    flow.close();
    return answer;
  },
  /** Opens a connection or a socket that stays. */
  async open(name: string, place: Place) {
    const flow = await openFlow(place, undefined, 20_000);
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

/** Opens a connection or a socket; resolves with what came instead if that fails. */
async function openFlow(
  place: Place,
  source: string | undefined,
  waitMs: number,
): Promise<Flow | Answer> {
  const { protocol, address, port } = readPlace(place);
  let answered: (answer: Answer) => void = () => undefined;
  const failed = (error: NodeJS.ErrnoException): void => answered(error.code ?? error.message);
  /** Does something, and resolves with the first answer. */
  const answerTo = (action: () => void, wait: number): Promise<Answer> => {
    const { promise, resolve } = Promise.withResolvers<Answer>();
    answered = resolve;
    const timer = setTimeout(resolve, wait, 'silence');
    action();
    return promise.finally(() => clearTimeout(timer));
  };
  if (protocol === 'TCP') {
    const from = source !== undefined && { localAddress: source };
    const socket = connect({ host: address, port, ...from })
      .on('error', failed)
      .on('connect', () => answered('open'))
      .on('data', (data) => answered(data.toString()))
      .on('close', () => answered('closed'));
    const close = () => void socket.destroy();
    const outcome = await answerTo(() => undefined, waitMs);
    if (outcome !== 'open') close();
    const say = async (wait: number) =>
      socket.destroyed ? 'closed' : answerTo(() => socket.write('hello'), wait);
    return outcome === 'open' ? { say, close } : outcome;
  }
  const socket = createSocket(address.includes(':') ? 'udp6' : 'udp4')
    .on('error', failed)
    .on('message', (message) => answered(message.toString()));
  const open = (): void => socket.connect(port, address, () => answered('open'));
  const outcome = await answerTo(
    () => (source === undefined ? open() : socket.bind(0, source, open)),
    waitMs,
  );
  const send = () => socket.send('hello', (error) => error !== null && failed(error));
  const close = () => void socket.close();
  const say = (wait: number) => answerTo(send, wait);
  return outcome === 'open' ? { say, repeat: send, close } : outcome;
}
