import { randomBytes } from 'node:crypto';
import { createSocket } from 'node:dgram';
import { on, once } from 'node:events';
import { createServer, Socket, type AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { systemClock } from '../../util/clock.ts';
import { AcceptorEngine, type CoreOptions } from '../acceptor-engine.ts';
import { DEFAULT_LIMITS } from '../limits.ts';
import type { EngineChange, Protocol } from '../spec.ts';
import { Loop } from './loop.ts';
import * as k from './sys/abi.ts';
import { UnfitError, type Library } from './sys/library.ts';
import { Pinned } from './sys/memory.ts';
import type { Sys } from './sys/sys.ts';
import { linuxTcp } from './tcp/transport.ts';
import { linuxUdp } from './udp/transport.ts';

/** The engine on system calls, in the thread that runs the loop. */
export function createDataPlane(loop: Loop, options: CoreOptions): AcceptorEngine {
  return new AcceptorEngine('linux', options, (context) => ({
    tcp: linuxTcp(loop, context),
    udp: linuxUdp(loop, context.limits),
  }));
}

/** The probes that need no other thread; the main thread has made the first one. Rejects with an UnfitError. */
export async function probeEngine(sys: Sys): Promise<void> {
  for (const [name, probe] of Object.entries({ calls: probeCalls, relay: probeRelay })) {
    try {
      await probe(sys);
    } catch (error) {
      throw new UnfitError(name, error);
    }
  }
}

/** After this many calls V8 has optimised the wrappers. */
const TRANSFERS = 20_000;

/**
 * Lengths, contents and error numbers are right, before and after V8 has optimised the wrappers: lengths are handed over
 * in 32 bits where the functions take 64.
 */
export function probeCalls({ ffi, c }: Library): void {
  const pair = new Pinned(ffi, 8);
  const flags = k.SOCK_STREAM | k.CLOEXEC | k.NONBLOCK;
  const failed = c.socketpair(k.AF_UNIX, flags, 0, pair.address);
  if (failed < 0) throw k.systemError(-failed, 'socketpair');
  const [one, other] = [pair.view.getInt32(0, true), pair.view.getInt32(4, true)];
  try {
    const [from, to] = [new Pinned(ffi, 4096), new Pinned(ffi, 4096)];
    for (let index = 0; index < from.length; index += 1) from.bytes[index] = index * 7;
    for (let index = 0; index < TRANSFERS; index += 1) {
      const length = 1 + ((index * 37) % 4096);
      from.bytes[length - 1] = index;
      const written = c.write(one, from.address, length);
      const read = c.read(other, to.address, 4096);
      const again = c.read(other, to.address, 4096);
      if (written !== length || read !== length || again !== -k.EAGAIN) {
        const results = `${written} out, ${read} in, then ${again}`;
        throw new Error(`transfer ${index} of ${length} bytes: ${results}`);
      }
      const isSame = to.bytes[length - 1] === (index & 255);
      if (!isSame || (index % 64 === 0 && !sameBytes(from, to, length))) {
        throw new Error(`transfer ${index} of ${length} bytes has changed on its way`);
      }
    }
  } finally {
    c.close(one);
    c.close(other);
  }
}

function sameBytes(one: Pinned, other: Pinned, length: number): boolean {
  return Buffer.compare(one.bytes.subarray(0, length), other.bytes.subarray(0, length)) === 0;
}

/** A probe that takes longer has failed, also on a busy machine. Milliseconds. */
const TIMEOUT_MS = 5000;
/** Unless it hardly got any CPU time: the whole machine may have been stopped. */
const MIN_TURNS = 10_000;

const BULK_BYTES = 1 << 20;
const SMALL_CONNECTIONS = 8;
const DATAGRAM_BYTES = [65_507, 0, 1, 1200, 1200, 1200, 700];
const DATAGRAM_CLIENTS = 4;

/** The engine carries connections, large and small, with half-close and reset, and datagrams of all sizes. */
export async function probeRelay(sys: Sys, timeoutMs = TIMEOUT_MS): Promise<void> {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    // A short request is answered with a reset.
    socket
      .on('error', () => undefined)
      .once('data', (first) => {
        if (first.length === 1) socket.resetAndDestroy();
      });
    socket.pipe(socket);
  });
  const udp = createSocket('udp4');
  udp.on('message', (message, { port, address }) => udp.send(message, port, address));
  server.listen(0, '127.0.0.1');
  udp.bind(0, '127.0.0.1');
  const failed = Promise.withResolvers<never>();
  const loop = new Loop(sys, failed.reject);
  const engine = createDataPlane(loop, {
    limits: { ...DEFAULT_LIMITS, connectTimeoutsMs: [TIMEOUT_MS] },
    clock: systemClock,
    random: Math.random,
    descriptorLimit: 1000,
  });
  const stopTurns = loop.takeTurns();
  let tried = 'TCP connections';
  const late = setInterval(() => {
    if (loop.turns < MIN_TURNS) return;
    const limit = `${timeoutMs} ms and ${loop.turns} turns`;
    const advice = 'a firewall that drops by default must accept packets on lo';
    failed.reject(new Error(`${tried} over 127.0.0.1 did not end within ${limit}; ${advice}`));
  }, timeoutMs);
  const over = new AbortController();
  const work = async (signal: AbortSignal): Promise<void> => {
    await Promise.all([once(server, 'listening'), once(udp, 'listening')]);
    const { port } = server.address() as AddressInfo;
    await engine.apply([echoService('TCP', port), echoService('UDP', udp.address().port)]);
    const [tcpPort = 0, udpPort = 0] = engine.snapshot().map(({ listeners: [listener] }) => {
      if (listener?.state === 'listening') return listener.boundPort;
      throw new Error(`it does not listen: ${JSON.stringify(listener)}`);
    });
    await bulk(tcpPort, signal);
    for (let count = 0; count < SMALL_CONNECTIONS; count += 1) await reset(tcpPort, signal);
    tried = 'UDP sessions';
    for (let count = 0; count < DATAGRAM_CLIENTS; count += 1) await exchange(udpPort, signal);
  };
  try {
    await Promise.race([work(over.signal), failed.promise]);
  } finally {
    clearInterval(late);
    await engine.destroy();
    stopTurns();
    loop.end();
    over.abort();
    server.close();
    udp.close();
  }
}

function echoService(protocol: Protocol, port: number): EngineChange {
  return {
    kind: 'set',
    spec: {
      name: `probe:${protocol}`,
      protocol,
      listen: [{ address: '127.0.0.1', port: 0, traffic: 'internal' }],
      endpoints: [{ address: '127.0.0.1', port, internal: true, external: true }],
      affinity: { kind: 'none' },
    },
  };
}

async function bulk(port: number, signal: AbortSignal): Promise<void> {
  const sent = randomBytes(BULK_BYTES);
  const client = new Socket({ signal, allowHalfOpen: true }).connect(port, '127.0.0.1');
  client.end(sent);
  if (!sent.equals(await buffer(client))) throw new Error('bytes have changed');
}

/** The endpoint resets after a byte, and so does the engine. */
async function reset(port: number, signal: AbortSignal): Promise<void> {
  const client = new Socket({ signal }).connect(port, '127.0.0.1');
  client.write('x');
  client.resume();
  const outcome = await once(client, 'end').catch((error: NodeJS.ErrnoException) => error.code);
  client.destroy();
  if (outcome !== 'ECONNRESET') throw new Error(`a reset connection ends with ${String(outcome)}`);
}

async function exchange(port: number, signal: AbortSignal): Promise<void> {
  const client = createSocket({ type: 'udp4', signal });
  client.connect(port, '127.0.0.1');
  await once(client, 'connect');
  const answers = on(client, 'message', { signal });
  for (const [index, size] of DATAGRAM_BYTES.entries()) client.send(Buffer.alloc(size, index + 1));
  for (const [index, size] of DATAGRAM_BYTES.entries()) {
    const { value } = await answers.next();
    const [message] = value as [Buffer];
    if (!message.equals(Buffer.alloc(size, index + 1)))
      throw new Error(`datagrams have changed: ${message.length} of ${message[0] ?? 'nothing'}`);
  }
  client.close();
}
