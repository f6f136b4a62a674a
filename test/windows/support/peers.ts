import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Running } from '../../support/running.ts';
import { until } from '../../support/until.ts';
import { NO_TEST, type Namespace } from './wine.ts';

/** A client or server inside the namespace. */
export class Peer extends Running {
  constructor({ inside }: Namespace, args: readonly string[]) {
    const path = join(import.meta.dirname, 'peer.ts');
    const [file = '', ...rest] = [...inside, process.execPath, path, ...args];
    super(NO_TEST, file, rest);
  }

  send(line: string): void {
    this.child.stdin?.write(`${line}\n`);
  }

  async end(): Promise<void> {
    this.kill('SIGKILL');
    await this.ended;
  }
}

/** For what takes a moment, by Wine on a loaded machine. Decides only how long a failing test takes. */
export const WAIT_MS = 180_000;

/** Resolves when a condition holds; rejects after `WAIT_MS`, with `text`. */
export async function becomes(
  what: string,
  holds: () => Promise<boolean>,
  text = async (): Promise<string> => '',
): Promise<void> {
  const end = performance.now() + WAIT_MS;
  while (!(await holds())) {
    if (performance.now() > end) throw new Error(`${what}: not so\n${await text()}`);
    await delay(50);
  }
}

/** Sends a line and resolves with what comes back within a while, or rejects. */
export async function ask(
  namespace: Namespace,
  protocol: 'tcp' | 'udp',
  address: string,
  port: number,
  line: string,
): Promise<void> {
  const peer = new Peer(namespace, [protocol, address, String(port)]);
  try {
    peer.send(line);
    await until(() => peer.stdout.endsWith('\n'), WAIT_MS);
    if (peer.stdout !== `${line}\n`)
      throw new Error(`${protocol} ${address}:${port}: ${peer.text}`);
  } finally {
    await peer.end();
  }
}

/** Holds a connection open while what `stop` begins drains it, and then ends it. */
export async function drains(
  namespace: Namespace,
  address: string,
  port: number,
  stop: () => Promise<unknown>,
): Promise<void> {
  const client = new Peer(namespace, ['tcp', address, String(port)]);
  client.send('before');
  await client.said(/before/);
  await stop();
  client.send('while it drains');
  await client.said(/while it drains/);
  await client.end();
}

/** Runs a program of this machine in the namespace; resolves with what it prints. */
export async function inside(namespace: Namespace, ...words: string[]): Promise<string> {
  const [file = '', ...args] = [...namespace.inside, ...words];
  return (await promisify(execFile)(file, args)).stdout;
}
