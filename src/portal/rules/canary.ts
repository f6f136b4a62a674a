import { createHash } from 'node:crypto';
import { connect, createServer, type AddressInfo, type Server } from 'node:net';
import type { Family } from '../../util/family.ts';
import { CANARY_TIMEOUT_MS } from '../bounds.ts';
import type { ProbeResult } from '../guard.ts';

/** An address and port that the canary is to be reached at. */
export interface CanaryPlace {
  readonly address: string;
  readonly port: number;
}

/** What the rules have to do for a canary. */
export interface CanaryRules {
  /** Where its clients go, always by TCP. */
  readonly place: CanaryPlace;
  /** Where the rules are to lead them. */
  readonly proxyPort: number;
}

/**
 * A service of our own on a loopback address, behind the same rules as all others. A
 * connection to it succeeds as long as the rules are there and the process lives, and is refused by
 * the kernel within a fraction of a millisecond when the rules are gone.
 *
 * That is cheaper than asking nft (a process each time) or `nft monitor` (a process that reads every
 * change of every table), and it tests what clients need. The kernel completes the connection by
 * itself, so a process that is busy is not taken for one without rules.
 */
export class Canary {
  readonly #owner: string;
  readonly #family: Family;
  #server: Server | undefined;

  constructor(owner: string, family: Family) {
    this.#owner = owner;
    this.#family = family;
  }

  /** Opens the proxy port. Once only. */
  async open(): Promise<CanaryRules> {
    const host = this.#family === 4 ? '0.0.0.0' : '::';
    this.#server = await openServer(host, `${GREETING} ${process.pid}\n`);
    return { place: canaryPlace(this.#owner, this.#family), proxyPort: portOf(this.#server) };
  }

  /** Connects to the canary of the rules' owner, which may be another process. */
  probe(owner: string = this.#owner): Promise<ProbeResult> {
    return tryToReach(canaryPlace(owner, this.#family));
  }

  /** Idempotent. */
  close(): void {
    this.#server?.close();
    this.#server = undefined;
  }
}

/** What a canary says to whoever connects, followed by the number of its process. */
const GREETING = 'kpng-userspace';

/** A server that says something and ends whatever connection it gets, and keeps nothing alive. */
export async function openServer(host: string, greeting = ''): Promise<Server> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    if (greeting !== '') socket.write(greeting);
    socket.destroySoon();
  });
  server.unref();
  server.once('error', reject);
  server.listen({ host, port: 0, ipv6Only: true }, resolve);
  await promise;
  server.off('error', reject);
  // Failing to accept a client is no news: the connection was made all the same.
  server.on('error', () => undefined);
  return server;
}

export function portOf(server: Server): number {
  return (server.address() as AddressInfo).port;
}

/** What comes of a connection. It leaves nothing behind. */
export function tryToReach({ address, port }: CanaryPlace): Promise<ProbeResult> {
  const { promise, resolve } = Promise.withResolvers<ProbeResult>();
  const socket = connect({ host: address, port, timeout: CANARY_TIMEOUT_MS });
  socket.unref();
  socket.once('connect', () => {
    // A reset leaves neither socket nor connection tracking with a memory of it.
    socket.resetAndDestroy();
    resolve('alive');
  });
  socket.once('timeout', () => {
    // A reset would wait for the connection.
    socket.destroy();
    resolve('silent');
  });
  socket.on('error', () => resolve('gone'));
  return promise;
}

/**
 * Where the canary of an owner is: follows from its name, so that another process can look for it.
 * There is but one IPv6 loopback address, so there only the port tells owners apart.
 */
export function canaryPlace(owner: string, family: Family): CanaryPlace {
  const [a = 0, b = 0, c = 0, high = 0, low = 0] = createHash('sha256').update(owner).digest();
  const port = 10_000 + ((high * 256 + low) % 20_000);
  if (family === 6) return { address: '::1', port };
  return { address: `127.${128 + (a % 127)}.${b}.${1 + (c % 254)}`, port };
}

/** A process that has written rules and lives. */
export interface LivingOwner {
  /** Its number, in the process namespace that it runs in; undefined: it did not say. */
  readonly pid: number | undefined;
}

/**
 * The process that has written rules under this name; undefined: it has ended. In doubt it lives. A host
 * without IPv6 says nothing about that, and on one with it the refusal may get lost on its way back to `::1`.
 */
export async function findOwner(owner: string): Promise<LivingOwner | undefined> {
  const heard = await Promise.all(
    ([4, 6] as const).map((family) => listenTo(canaryPlace(owner, family))),
  );
  const alive = heard.filter(({ probe }) => probe === 'alive');
  if (alive.length === 0 && heard.some(({ probe }) => probe === 'gone')) return undefined;
  return { pid: alive.map(({ text }) => readGreeting(text)).find((pid) => pid !== undefined) };
}

/** What comes of a connection, and what is said on it: a line at the most. */
function listenTo({ address, port }: CanaryPlace): Promise<{ probe: ProbeResult; text: string }> {
  const { promise, resolve } = Promise.withResolvers<{ probe: ProbeResult; text: string }>();
  const socket = connect({ host: address, port, timeout: CANARY_TIMEOUT_MS });
  socket.unref();
  let probe: ProbeResult = 'gone';
  let text = '';
  socket.setEncoding('latin1').on('data', (more: string) => {
    text = (text + more).slice(0, MAX_GREETING);
    if (text.includes('\n') || text.length === MAX_GREETING) socket.destroy();
  });
  socket.once('connect', () => (probe = 'alive'));
  socket.once('timeout', () => {
    if (probe === 'gone') probe = 'silent';
    socket.destroy();
  });
  socket.on('error', () => undefined);
  socket.once('close', () => resolve({ probe, text }));
  return promise;
}

const MAX_GREETING = 64;

function readGreeting(text: string): number | undefined {
  const [, pid] = new RegExp(String.raw`^${GREETING} (\d+)\n`).exec(text) ?? [];
  return pid === undefined ? undefined : Number(pid);
}
