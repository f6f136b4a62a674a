import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, Socket, type AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { DEFAULT_LIMITS } from '../../limits.ts';
import type { Protocol, ServicePortSpec } from '../../spec.ts';
import { createDataPlane } from '../engine.ts';
import { LoopClock, Loop } from '../loop.ts';
import {
  newSys,
  expect,
  type Findings,
  type Probe,
  addressProbe,
  epollProbe,
  errnoProbe,
  functionsProbe,
  platformProbe,
  transferProbe,
} from './basics.ts';

/** A probe that takes longer has failed, also on a busy machine. Milliseconds. */
const TIMEOUT_MS = 5000;
/** Unless it hardly got any CPU time: the whole machine may have been stopped. */
const MIN_TURNS = 10_000;

const BULK_BYTES = 1 << 20;
const SMALL_CONNECTIONS = 8;
const DATAGRAM_BYTES = [65_507, 0, 1, 1200, 1200, 1200, 700];
const DATAGRAM_CLIENTS = 4;

/** The engine itself carries some connections: large and small, with half-close and reset. */
export const relayProbe: Probe = {
  name: 'relay',
  async check(findings) {
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      // A short request is answered with a reset.
      socket
        .on('error', () => undefined)
        .once('data', (first) => {
          if (first.length === 1) socket.resetAndDestroy();
        });
      socket.pipe(socket);
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    try {
      const { port } = server.address() as AddressInfo;
      await withEngine(findings, 'TCP', port, async (engine) => {
        await bulk(engine);
        for (let count = 0; count < SMALL_CONNECTIONS; count += 1) {
          makeGarbage();
          await reset(engine);
        }
        expect('the number of bytes', engine.counters().bytesOut, BULK_BYTES);
      });
    } finally {
      server.close();
    }
  },
};

/** The engine itself carries some datagrams of all sizes, several of them together. */
export const datagramProbe: Probe = {
  name: 'datagrams',
  async check(findings) {
    const server = createSocket('udp4');
    server.on('message', (message, { port, address }) => server.send(message, port, address));
    server.bind(0, '127.0.0.1');
    await once(server, 'listening');
    try {
      await withEngine(findings, 'UDP', server.address().port, async (engine) => {
        for (let client = 0; client < DATAGRAM_CLIENTS; client += 1) await exchange(engine);
        const expected = DATAGRAM_CLIENTS * DATAGRAM_BYTES.length;
        expect('the number of answers', engine.counters().datagramsOut, expected);
      });
    } finally {
      server.close();
    }
  },
};

interface ProbedEngine {
  readonly port: number;
  /** Aborted when the probe ends: clients close. */
  readonly signal: AbortSignal;
  counters(): { readonly bytesOut: number; readonly datagramsOut: number };
}

/** Runs an engine with one endpoint on this host for as long as the work takes; rejects when that is too long. */
async function withEngine(
  findings: Findings,
  protocol: Protocol,
  endpointPort: number,
  work: (engine: ProbedEngine) => Promise<void>,
): Promise<void> {
  const clock = new LoopClock();
  const failed = Promise.withResolvers<never>();
  failed.promise.catch(() => undefined);
  const over = new AbortController();
  const loop = new Loop(newSys(findings), {
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
    await engine.apply([{ kind: 'set', spec: probeService(protocol, endpointPort) }]);
    const [service] = engine.snapshot();
    const listener = service?.listeners[0];
    if (service === undefined || listener?.state !== 'listening')
      throw new Error(`it does not listen: ${JSON.stringify(listener)}`);
    const { counters } = service;
    const probed = {
      port: listener.boundPort,
      signal: over.signal,
      counters: () => counters,
    };
    await Promise.race([work(probed), failed.promise]);
  } finally {
    over.abort();
    await engine.destroy();
    isTurning = false;
    loop.end();
  }
}

function probeService(protocol: Protocol, port: number): ServicePortSpec {
  return {
    name: 'probe',
    protocol,
    listen: [{ address: '127.0.0.1', port: 0, traffic: 'internal' }],
    endpoints: [{ address: '127.0.0.1', port, internal: true, external: true }],
    affinity: { kind: 'none' },
  };
}

/** Sends much, half-closes, and reads all of it back. */
async function bulk({ port, signal }: ProbedEngine): Promise<void> {
  const sent = Buffer.alloc(BULK_BYTES);
  const words = new Uint32Array(sent.buffer, sent.byteOffset, BULK_BYTES / 4);
  for (let index = 0; index < words.length; index += 1) words[index] = index * 2_654_435_761;
  const client = new Socket({ signal, allowHalfOpen: true }).connect(port, '127.0.0.1');
  client.end(sent);
  if (!sent.equals(await buffer(client))) throw new Error('bytes have changed');
}

/** The endpoint resets after a byte, and so does the engine. */
async function reset({ port, signal }: ProbedEngine): Promise<void> {
  const client = new Socket({ signal }).connect(port, '127.0.0.1');
  client.write('x');
  client.resume();
  const outcome = await once(client, 'end').catch((error: NodeJS.ErrnoException) => error.code);
  client.destroy();
  expect('the end of a reset connection', outcome, 'ECONNRESET');
}

async function exchange({ port, signal }: ProbedEngine): Promise<void> {
  const client = createSocket({ type: 'udp4', signal });
  client.connect(port, '127.0.0.1');
  await once(client, 'connect');
  const answers: string[] = [];
  const all = Promise.withResolvers<void>();
  client.on('message', (message) => {
    answers.push(`${message.length} of ${message[0] ?? 'nothing'}`);
    if (answers.length === DATAGRAM_BYTES.length) all.resolve();
  });
  const expected = DATAGRAM_BYTES.map((size, index) => {
    client.send(Buffer.alloc(size, index + 1));
    return `${size} of ${size === 0 ? 'nothing' : index + 1}`;
  });
  await all.promise;
  expect('what came back', answers.join(', '), expected.join(', '));
}

/** Allocates memory, so that unreferenced objects are collected. */
function makeGarbage(): number {
  let bytes = 0;
  for (let index = 0; index < 16; index += 1) bytes += new ArrayBuffer(1 << 20).byteLength;
  return bytes;
}

/** The facts about the system that a worker needs. */
export const BASIC_PROBES: readonly Probe[] = [
  platformProbe(),
  functionsProbe,
  errnoProbe,
  epollProbe,
  addressProbe,
];

/** The checks before the first worker serves clients, from the ground up. */
export const PROBES: readonly Probe[] = [
  ...BASIC_PROBES,
  transferProbe(10_000),
  relayProbe,
  datagramProbe,
];
