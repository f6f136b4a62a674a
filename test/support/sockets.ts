/** What tests of TCP and of UDP sockets need alike: events, ports, and what this process has in use. */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { connect, createServer, type AddressInfo, type Server } from 'node:net';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { TypedChannel } from '../../src/util/channel.ts';

// libuv opens a spare descriptor with the first stream of a process, and keeps it: now, so that no test counts it.
connect(1, '127.0.0.1').destroy();

/** What a test of tap offers that these helpers need. */
export interface Teardown {
  teardown(after: () => unknown): void;
}

/** Calls back for each event of a channel until the test ends. */
export function listening<Event extends object>(
  t: Teardown,
  channel: TypedChannel<Event>,
  onEvent: (event: Event) => void,
): void {
  channel.subscribe(onEvent);
  t.teardown(() => channel.unsubscribe(onEvent));
}

/** Collects the messages of a channel until the test ends. */
export function collect<T extends object>(t: Teardown, channel: TypedChannel<T>): T[] {
  const messages: T[] = [];
  listening(t, channel, (message) => messages.push(message));
  return messages;
}

/** Ports in a block. */
const BLOCK = 64;

/**
 * Chooses TCP ports that were free a moment ago on every address, each as long as possible after it was chosen before.
 * Tests that run at the same time in other processes choose none of them: this one listens on the first port of its
 * block until it ends.
 */
export async function portBlock(least: number, most: number): Promise<() => Promise<number>> {
  const blocks = Math.floor((most - least) / BLOCK);
  let first = 0;
  let holder: Server | undefined;
  while (holder === undefined) {
    first = least + BLOCK * Math.floor(Math.random() * blocks);
    holder = await listen(first);
  }
  holder.unref();
  let last = 0;
  return async () => {
    for (;;) {
      last = (last % (BLOCK - 1)) + 1;
      const port = first + last;
      const server = await listen(port);
      if (server !== undefined) return release(server);
    }
  };
}

async function release(server: Server): Promise<number> {
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

/** Undefined: someone has the port. */
async function listen(port: number): Promise<Server | undefined> {
  const server = createServer().listen(port);
  try {
    await once(server, 'listening');
    return server;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EADDRINUSE') return undefined;
    throw error;
  }
}

/** A free TCP port of this process. The system chooses no such port for other sockets. */
export const freePort = await portBlock(24_000, 32_000);

/** One that the system chooses. */
export async function kernelPort(): Promise<number> {
  const server = createServer().listen();
  await once(server, 'listening');
  return release(server);
}

/** Files, sockets and the like that this process has open; on other systems than Linux, only what Node knows of. */
export function openDescriptors(): number {
  if (process.platform === 'linux') return readdirSync('/proc/self/fd').length;
  return process.getActiveResourcesInfo().filter((kind) => kind.endsWith('Wrap')).length;
}

/** The same when what was destroyed before is really closed, which takes some turns of the loop. */
export async function settledDescriptors(): Promise<number> {
  for (let turn = 0; turn < 20; turn += 1) {
    await new Promise(setImmediate);
  }
  return openDescriptors();
}

export function sha256(data: Buffer): string {
  return createHash('sha256').update(data).digest('hex');
}

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

/** Memory in use after a full collection. Bytes. */
export function usedMemory(): NodeJS.MemoryUsage {
  collectGarbage();
  return process.memoryUsage();
}
