import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { setImmediate, setTimeout as wait } from 'node:timers/promises';
import { until } from '../../../examples/support/until.ts';
import type { OpItem } from '../../../src/api/generated/localv1/api.ts';
import { DEFAULT_STATE_LIMITS } from '../../../src/store/change-set.ts';
import {
  startKpngServer,
  type KpngServer,
  type ServerStream,
} from '../../../test/support/kpng-server.ts';
import * as messages from '../../../test/support/messages.ts';
import type { Abuse } from '../scenario.ts';
import type { Stage } from '../stage.ts';

/** The control service as a kpng server sends it, complete. */
function goodState(stage: Stage): OpItem[] {
  const { host, tcp, udp } = stage.target;
  const service = messages.service('abuse/control', {
    ips: { clusterIPs: { v4: [host] } },
    ports: [
      { name: 'tcp', protocol: 1, port: tcp, targetPort: tcp },
      { name: 'udp', protocol: 2, port: udp, targetPort: udp },
    ],
  });
  const endpoint = messages.endpoint(stage.place.endpointIp);
  return [
    messages.reset,
    messages.setService(service),
    messages.setEndpoint('abuse/control/e1', endpoint),
    messages.sync,
  ];
}

interface GoodServer extends KpngServer {
  /** Resolves with whether a client has come and got the state. */
  readonly served: Promise<boolean>;
}

/** Of the scenario that runs. */
let server: GoodServer;

/** A server that answers the first request well. */
async function goodServer(stage: Stage, at = 0): Promise<GoodServer> {
  const started = await startKpngServer({ address: `127.0.0.1:${at}` });
  stage.teardown(() => started.stop());
  const answer = async (): Promise<boolean> => {
    const stream = await started.stream();
    await stream.request();
    stream.send(...goodState(stage));
    return true;
  };
  server = Object.assign(started, { served: answer().catch(() => false) });
  return server;
}

const fromServer = async (stage: Stage) => {
  const { port } = await goodServer(stage);
  return { source: ['local', `--api=127.0.0.1:${port}`] };
};

/** Longest time until the client has got more than it accepts, on a loaded machine. Milliseconds. */
const TOO_LARGE_MS = 150_000;

/** Sends operations as fast as they are taken, until the client breaks off or time is up. */
async function pour(stream: ServerStream, item: (number: number) => OpItem, ms: number) {
  const end = performance.now() + ms;
  const over = new AbortController();
  void stream.closed.then(() => over.abort());
  let sent = 0;
  while (!over.signal.aborted && performance.now() < end) {
    for (let count = 0; count < 200; count += 1) stream.send(item((sent += 1)));
    await stream.drained();
    await setImmediate();
  }
  return { sent, isOver: over.signal.aborted };
}

/** After a good state, a set of changes that never ends: the client has to break off at its limit, and to come again. */
function endless(
  name: string,
  title: string,
  item: (number: number) => OpItem,
  more: Partial<Abuse> = {},
): Abuse {
  return {
    name,
    title,
    engines: ['node'],
    memoryMiB: STATE_MIB + GARBAGE_MIB,
    stage: fromServer,
    async run(stage, size) {
      server.stop();
      const hostile = await startKpngServer({ address: `127.0.0.1:${server.port}` });
      stage.teardown(() => hostile.stop());
      const stream = await hostile.stream();
      const { sent, isOver } = await pour(stream, item, size.pick(1500, TOO_LARGE_MS));
      const did = `${sent} operations of 4 KB without a Sync`;
      if (!size.isLong) return { did };
      if (!isOver) return { did, mistakes: ['the client did not break off'] };
      const isReported = () => stage.proxy.log().includes('KPNG_STATE_TOO_LARGE') || undefined;
      await until('KPNG_STATE_TOO_LARGE is logged', isReported, { within: 10_000 });
      await hostile.stream();
      return { did: `${did}; the client broke off (\`KPNG_STATE_TOO_LARGE\`) and called again` };
    },
    ...more,
  };
}

/** What a client accepts of state, and what the garbage collector leaves meanwhile. */
const STATE_MIB = DEFAULT_STATE_LIMITS.maxBytes / 1024 ** 2;
const GARBAGE_MIB = 200;

const TEXT = 'x'.repeat(4000);

export const neverSync: Abuse = endless(
  'never-sync',
  'A kpng server that never sends Sync',
  (number) =>
    messages.setService(messages.service(`a/s${number}`, { annotations: { padding: TEXT } })),
  { short: false },
);

export const orphans: Abuse = endless(
  'orphans',
  'A kpng server that sends endpoints of services that do not exist',
  (number) =>
    messages.setEndpoint(
      `a/none-${number}/${TEXT}`,
      messages.endpoint(`10.0.${(number >> 8) & 255}.${number & 255}`),
    ),
);

/** Servers that speak something else, and then one that is right again. */
export const junkServer: Abuse = {
  name: 'junk-server',
  title: 'A kpng server that sends junk frames',
  short: false,
  engines: ['node'],
  stage: fromServer,
  async run(stage, size) {
    const { port } = server;
    server.stop();
    let connections = 0;
    const settings = Buffer.from('000000040000000000', 'hex');
    const kinds: readonly ((socket: Socket) => void)[] = [
      (socket) => socket.write(randomBytes(10_000)),
      (socket) => socket.write(Buffer.concat([settings, randomBytes(10_000)])),
      // A header block without an end.
      (socket) => {
        socket.write(Buffer.concat([settings, Buffer.from('004000010000000001', 'hex')]));
        for (let n = 0; n < 200; n += 1) socket.write(Buffer.alloc(10_000, 0x40));
      },
      // Settings without end, each of which wants an answer.
      (socket) => socket.write(Buffer.concat(Array.from({ length: 20_000 }, () => settings))),
      (socket) => socket.end('HTTP/1.1 200 OK\r\n\r\n'),
      () => undefined,
    ];
    const junk = createServer((socket) => {
      socket.on('error', () => undefined).resume();
      kinds[connections % kinds.length]?.(socket);
      connections += 1;
      setTimeout(() => socket.destroy(), 300);
    });
    junk.listen(port, '127.0.0.1');
    await once(junk, 'listening');
    await wait(size.pick(2500, 12_000));
    junk.close();
    const { served } = await goodServer(stage, port);
    const isBack = !size.isLong || (await served);
    const mistakes = isBack ? [] : ['it did not come back to a good server within 20 s'];
    return { did: `${connections} connections of ${kinds.length} kinds`, mistakes };
  },
};
