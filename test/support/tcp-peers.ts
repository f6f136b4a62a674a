/** TCP clients and servers for tests of the data path. All of them end with the test. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { resetSocket } from '../../src/proxysocket/node/tcp/side.ts';
import type { EndpointSpec } from '../../src/proxysocket/spec.ts';
import type { Teardown } from './sockets.ts';

export type TcpServer = Awaited<ReturnType<typeof tcpServer>>;

export function endpointAt(port: number, address = '127.0.0.1'): EndpointSpec {
  return { address, port, internal: true, external: true };
}

/** A server whose connections can be half open. `onSocket` gets each of them. */
export async function tcpServer(
  t: Teardown,
  onSocket: (socket: Socket) => unknown = () => undefined,
  address = '127.0.0.1',
  listenPort = 0,
) {
  const sockets: Socket[] = [];
  let asked = 0;
  let open = 0;
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    // Peers that reset are part of many tests; those that care listen themselves.
    socket.on('error', () => undefined);
    open += 1;
    socket.on('close', () => (open -= 1));
    sockets.push(socket);
    onSocket(socket);
    server.emit('kept');
  });
  server.listen({ host: address, port: listenPort, backlog: 4096 });
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  /** Stops listening and resets its connections. */
  const kill = async (): Promise<void> => {
    if (!server.listening) return;
    const closed = once(server, 'close');
    server.close();
    for (const socket of sockets) resetSocket(socket);
    await closed;
  };
  t.teardown(kill);
  return {
    port,
    endpoint: endpointAt(port, address),
    /** Connections in the order in which they came; those that ended, too. */
    sockets,
    /** Connections that are open. */
    get open() {
      return open;
    },
    /** Resolves with the next connection that has not been asked for. */
    async next() {
      while (sockets.length <= asked) await once(server, 'kept');
      asked += 1;
      const socket = sockets[asked - 1];
      if (socket === undefined) throw new Error('no such connection');
      return socket;
    },
    kill,
  };
}

/** Sends everything back and ends when the client does. */
export async function echoServer(t: Teardown): Promise<TcpServer> {
  return tcpServer(t, (socket) => socket.pipe(socket));
}

/** Sends its name and ends, so that a client sees who it was. */
export async function namedServer(t: Teardown, name: string, address?: string): Promise<TcpServer> {
  return tcpServer(t, (socket) => socket.end(name), address);
}

/** An endpoint that refuses: its port was free a moment ago, on an address that no one else uses. */
export async function refusingEndpoint(t: Teardown): Promise<EndpointSpec> {
  const server = await tcpServer(t, undefined, '127.66.6.6');
  await server.kill();
  return server.endpoint;
}

/** A connected client that may be half open. */
export async function tcpClient(
  t: Teardown,
  port: number,
  address = '127.0.0.1',
  localAddress?: string,
): Promise<Socket> {
  const socket = connect({
    port,
    host: address,
    allowHalfOpen: true,
    noDelay: true,
    ...(localAddress && { localAddress }),
  });
  t.teardown(() => socket.destroy());
  await once(socket, 'connect');
  socket.on('error', () => undefined);
  return socket;
}

/** Everything that comes until the FIN; rejects with the error of a connection that breaks. */
export async function readAll(socket: Socket): Promise<Buffer> {
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => chunks.push(chunk));
  if (!socket.readableEnded) await once(socket, 'end');
  return Buffer.concat(chunks);
}

/** Sends a text; resolves with whether it comes back. */
export async function echoed(socket: Socket, text: string): Promise<boolean> {
  socket.write(text);
  return String((await once(socket, 'data'))[0]) === text;
}

/** Connects, sends a text and its FIN, and resolves with the whole answer. */
export async function request(
  t: Teardown,
  port: number,
  text = '',
  { address, localAddress }: { address?: string; localAddress?: string } = {},
): Promise<string> {
  const socket = await tcpClient(t, port, address, localAddress);
  socket.end(text);
  const answer = String(await readAll(socket));
  socket.destroy();
  return answer;
}

/** Resolves with the code of the error that ends the connection, or with 'FIN' when none does. */
export async function endOf(socket: Socket): Promise<string> {
  if (socket.errored !== null) return codeOf(socket.errored);
  const { promise, resolve } = Promise.withResolvers<string>();
  socket.once('error', (error) => resolve(codeOf(error)));
  socket.once('end', () => resolve('FIN'));
  socket.once('close', () => resolve('closed'));
  socket.resume();
  return promise;
}

/** Connects and resolves with how the connection ends, also when it does so at once. */
export async function connectionEnd(
  t: Teardown,
  port: number,
  localAddress?: string,
): Promise<string> {
  const socket = connect({ port, host: '127.0.0.1', ...(localAddress && { localAddress }) });
  t.teardown(() => socket.destroy());
  return endOf(socket);
}

/** The sockets of this network namespace, as Linux lists them. */
export function kernelSockets() {
  const lines = readFileSync('/proc/net/tcp', 'utf8').trimEnd().split('\n').slice(1);
  return lines.map((line) => {
    const [, local = '', remote = '', state = '', , timer = ''] = line.trim().split(/\s+/);
    const portOf = (address: string): number => Number.parseInt(address.split(':')[1] ?? '', 16);
    return {
      localPort: portOf(local),
      remotePort: portOf(remote),
      /** 1: established, 2: SYN sent. */
      state: Number.parseInt(state, 16),
      /** What it waits for; 2: keepalive. */
      timer: Number.parseInt(timer, 16),
    };
  });
}

function codeOf(error: Error): string {
  return 'code' in error ? String(error.code) : error.message;
}

const CHILD = `
const server = require('node:net').createServer();
const [backlog, host, port] = process.argv.slice(1);
server.listen({ host, port: Number(port), backlog: Number(backlog) }, () => {
  console.log(server.address().port);
  // Blocks the loop, so that nothing is ever accepted.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
});
`;

/** So many connections has Node on Windows asked for before they come: they count as accepted. */
const ASKED_FOR = process.platform === 'win32' ? 32 : 0;

/** An endpoint in a process of its own that is stuck: the kernel takes connections, and it accepts none. */
export async function deafEndpoint(t: Teardown, backlog = 64, at = endpointAt(0)) {
  const args = [String(backlog), at.address, String(at.port)];
  const child = spawn(process.execPath, ['-e', CHILD, ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const gone = once(child, 'close');
  /** Ends its process, which resets what its kernel has taken; resolves when it is gone. */
  const kill = async (): Promise<void> => {
    child.kill('SIGKILL');
    await gone;
  };
  t.teardown(kill);
  const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
  const port = Number(line);
  await Promise.all(Array.from({ length: ASKED_FOR }, () => tcpClient(t, port, at.address)));
  return { endpoint: endpointAt(port, at.address), kill };
}

/**
 * An endpoint that answers nothing at all to a connect, as a host behind a firewall does.
 *
 * A process listens and never accepts. With a backlog of 1 the kernel keeps two connections for it;
 * once these are there, it drops whatever else arrives.
 */
export async function blackHole(t: Teardown, at = endpointAt(0)): Promise<EndpointSpec> {
  const { endpoint } = await deafEndpoint(t, 1, at);
  await tcpClient(t, endpoint.port, endpoint.address);
  await tcpClient(t, endpoint.port, endpoint.address);
  return endpoint;
}
