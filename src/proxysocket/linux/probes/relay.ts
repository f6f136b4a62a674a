import { LoopGuard } from '../../core/loop-guard.ts';
import { ECONNRESET } from '../sys/constants.ts';
import type { Pinned } from '../sys/memory.ts';
import { createTcpAcceptor } from '../../tcp/acceptor.ts';
import { LinuxTcpTransport } from '../tcp/transport.ts';
import { canaryService, keepTurning, loopback, makeGarbage, newCage, type Cage } from './canary.ts';
import { expect, type Probe } from './probe.ts';

const BULK_BYTES = 4 << 20;
const SMALL_CONNECTIONS = 8;

/** The engine itself carries some connections: large and small, with half-close and reset. */
export const relayProbe: Probe = {
  name: 'relay',
  async check(findings) {
    const cage = newCage(findings);
    const { sys, loop, context } = cage;
    const server = listen(cage);
    const transport = new LinuxTcpTransport(loop, context);
    const acceptor = createTcpAcceptor(transport, context, new LoopGuard(context.clock));
    try {
      const owner = canaryService(cage, 'TCP', sys.sockets.localAddress(server)?.port ?? 0);
      const spec = { address: '127.0.0.1', port: 0, traffic: 'internal' } as const;
      const { boundPort } = await acceptor.listen(spec, owner);
      bulk(cage, server, boundPort);
      for (let count = 0; count < SMALL_CONNECTIONS; count += 1) {
        makeGarbage();
        resets(cage, server, boundPort);
      }
      expect('the number of bytes', owner.counters.bytesOut, BULK_BYTES);
    } finally {
      await acceptor.destroy();
      sys.sockets.close(server);
      loop.end();
    }
  },
};

function listen({ sys }: Cage): number {
  const fd = sys.sockets.stream(4);
  sys.sockets.bind(fd, loopback(sys, 0));
  expect('the result of listen', sys.sockets.listen(fd, 16), 0);
  return fd;
}

/** A connection through the relay: the client's socket and the endpoint's. */
function connectThrough(cage: Cage, server: number, port: number): [number, number] {
  const { sockets } = cage.sys;
  const client = sockets.stream(4);
  sockets.connect(client, loopback(cage.sys, port));
  let endpoint = -1;
  keepTurning(
    cage,
    () => {
      if (endpoint < 0) endpoint = sockets.accept(server);
      return endpoint >= 0;
    },
    'a connection',
  );
  return [client, endpoint];
}

/** Sends much, ends its half, and gets all of it back. */
function bulk(cage: Cage, server: number, port: number): void {
  const { sockets, streams } = cage.sys;
  const [client, endpoint] = connectThrough(cage, server, port);
  try {
    const sent = filled(cage.sys.alloc(BULK_BYTES));
    const got = cage.sys.alloc(BULK_BYTES);
    const echo = cage.sys.alloc(256 * 1024);
    let [out, back, held, done] = [0, 0, 0, 0];
    let isEnded = false;
    keepTurning(
      cage,
      () => {
        if (out < BULK_BYTES) {
          out += Math.max(0, streams.write(client, sent, BULK_BYTES - out, out));
          if (out === BULK_BYTES) sockets.shutdownWrite(client);
        }
        if (held === done && !isEnded) {
          [held, done] = [streams.read(endpoint, echo, echo.length), 0];
          if (held === 0) {
            isEnded = true;
            sockets.shutdownWrite(endpoint);
          }
          held = Math.max(0, held);
        }
        if (done < held) done += Math.max(0, streams.write(endpoint, echo, held - done, done));
        if (back === BULK_BYTES) return streams.read(client, echo, 1) === 0;
        back += Math.max(0, streams.read(client, got, BULK_BYTES - back, back));
        return false;
      },
      'a transfer',
    );
    if (Buffer.compare(sent.bytes, got.bytes) !== 0) throw new Error('bytes have changed');
  } finally {
    sockets.close(client);
    sockets.close(endpoint);
  }
}

/** The endpoint resets after a few bytes, and the client is told so. */
function resets(cage: Cage, server: number, port: number): void {
  const { sockets, streams } = cage.sys;
  const [client, endpoint] = connectThrough(cage, server, port);
  const memory = cage.sys.alloc(16);
  streams.write(client, memory, 16);
  keepTurning(cage, () => streams.read(endpoint, memory, 16) === 16, 'a request');
  sockets.reset(endpoint);
  keepTurning(cage, () => streams.read(client, memory, 16) === -ECONNRESET, 'a reset');
  sockets.close(client);
}

function filled(memory: Pinned): Pinned {
  const words = new Uint32Array(memory.bytes.buffer);
  for (let index = 0; index < words.length; index += 1) words[index] = index * 2_654_435_761;
  return memory;
}
