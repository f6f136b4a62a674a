/** What tests of TCP and of UDP sockets need alike: events, ports, and what this process has in use. */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { connect, createServer, type AddressInfo } from 'node:net';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { TypedChannel } from '../../src/util/channel.ts';
import { listening } from './mailbox.ts';

// libuv opens a spare descriptor with the first stream of a process, and keeps it: now, so that no test counts it.
connect(1, '127.0.0.1').destroy();

/** What a test of tap offers that these helpers need. */
export interface Teardown {
  teardown(after: () => unknown): void;
}

/** Collects the messages of a channel until the test ends. */
export function collect<T extends object>(t: Teardown, channel: TypedChannel<T>): T[] {
  const messages: T[] = [];
  listening(t, channel, (message) => messages.push(message));
  return messages;
}

/** A TCP port that was free a moment ago on every address. The system chooses no such port for other sockets. */
export async function freePort(): Promise<number> {
  try {
    return await released(24_000 + Math.floor(Math.random() * 8_000));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EADDRINUSE') return freePort();
    throw error;
  }
}

/** One that the system chooses. */
export function kernelPort(): Promise<number> {
  return released(0);
}

async function released(wanted: number): Promise<number> {
  const server = createServer().listen(wanted);
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
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
