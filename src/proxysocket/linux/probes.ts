import { createSocket } from 'node:dgram';
import { on, once } from 'node:events';
import { createServer, Socket, type AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { messageOf } from '../../errors.ts';
import { DEFAULT_LIMITS } from '../limits.ts';
import type { EngineChange, Protocol } from '../spec.ts';
import { createDataPlane } from './engine.ts';
import { LoopClock, Loop } from './loop.ts';
import * as k from './sys/abi.ts';
import { importFfi, openLibrary, type FfiModule, type Library } from './sys/library.ts';
import { Pinned, type DescriptorLedger } from './sys/memory.ts';
import { Sys } from './sys/sys.ts';

/** Why this thread cannot serve clients through system calls: the start-up probe that failed. */
export class UnfitError extends Error {
  override readonly name = 'UnfitError';

  constructor(probe: string, cause: unknown) {
    super(`${probe}: ${messageOf(cause)}`, { cause });
  }
}

/**
 * The system calls of this thread, after the probes. `isProven`: another thread of this process has passed all of them.
 * Rejects with an UnfitError.
 */
export async function openProbed(ledger: DescriptorLedger, isProven: boolean): Promise<Sys> {
  const probe = async <T>(name: string, check: () => T | Promise<T>): Promise<T> => {
    try {
      return await check();
    } catch (error) {
      throw new UnfitError(name, error);
    }
  };
  const sys = new Sys(await probe('platform', () => probePlatform()), ledger);
  if (isProven) return sys;
  await probe('calls', () => probeCalls(sys));
  await probe('relay', () => probeRelay(sys));
  return sys;
}

/** This system, this processor, and a Node that has `node:ffi`, may use it, and finds every C function. */
export async function probePlatform(
  platform: string = process.platform,
  arch: string = process.arch,
  load: () => Promise<FfiModule> = importFfi,
): Promise<Library> {
  if (platform !== 'linux') throw new Error(`the system is ${platform}, not linux`);
  if (arch !== 'x64' && arch !== 'arm64') throw new Error(`the processor is ${arch}`);
  return openLibrary(await load());
}

/** After this many calls V8 has optimised the wrappers. */
const TRANSFERS = 20_000;

/**
 * Lengths, contents and error numbers are right, before and after V8 has optimised the wrappers: lengths are handed over
 * in 32 bits where the functions take 64.
 */
export function probeCalls({ ffi, c }: Library): void {
  const pair = new Pinned(ffi, 8);
  const flags = k.SOCK_STREAM | k.SOCK_CLOEXEC | k.SOCK_NONBLOCK;
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
export async function probeRelay(sys: Sys): Promise<void> {
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
  const over = new AbortController();
  const { signal } = over;
  try {
    await Promise.all([once(server, 'listening'), once(udp, 'listening')]);
    const { port } = server.address() as AddressInfo;
    const changes = [echoService('TCP', port), echoService('UDP', udp.address().port)];
    await withEngine(sys, changes, async (ports) => {
      await bulk(ports.TCP, signal);
      for (let count = 0; count < SMALL_CONNECTIONS; count += 1) await reset(ports.TCP, signal);
      for (let count = 0; count < DATAGRAM_CLIENTS; count += 1) await exchange(ports.UDP, signal);
    });
  } finally {
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

/** Runs an engine for as long as the work takes; rejects when that is too long. */
async function withEngine(
  sys: Sys,
  changes: readonly EngineChange[],
  work: (ports: Record<Protocol, number>) => Promise<void>,
): Promise<void> {
  const clock = new LoopClock();
  const failed = Promise.withResolvers<never>();
  failed.promise.catch(() => undefined);
  const loop = new Loop(sys, {
    onWake: () => clock.tick(),
    onFault: (error) => failed.reject(error),
  });
  const engine = createDataPlane(loop, {
    limits: { ...DEFAULT_LIMITS, connectTimeoutsMs: [TIMEOUT_MS] },
    clock,
    random: Math.random,
    descriptorLimit: 1000,
  });
  const deadline = performance.now() + TIMEOUT_MS;
  let isTurning = true;
  const turn = (turns: number): void => {
    if (!isTurning) return;
    loop.turn(0);
    clock.run();
    if (turns >= MIN_TURNS && performance.now() > deadline)
      failed.reject(new Error(`the work did not end within ${TIMEOUT_MS} ms and ${turns} turns`));
    else setImmediate(turn, turns + 1);
  };
  turn(0);
  try {
    await engine.apply(changes);
    const ports = { TCP: 0, UDP: 0 };
    for (const { protocol, listeners } of engine.snapshot()) {
      const [listener] = listeners;
      if (listener?.state !== 'listening')
        throw new Error(`it does not listen: ${JSON.stringify(listener)}`);
      ports[protocol] = listener.boundPort;
    }
    await Promise.race([work(ports), failed.promise]);
  } finally {
    await engine.destroy();
    isTurning = false;
    loop.end();
  }
}

async function bulk(port: number, signal: AbortSignal): Promise<void> {
  const sent = Buffer.alloc(BULK_BYTES);
  const words = new Uint32Array(sent.buffer, sent.byteOffset, BULK_BYTES / 4);
  for (let index = 0; index < words.length; index += 1) words[index] = index * 2_654_435_761;
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
