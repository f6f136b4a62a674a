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
    this.#server = await openServer(this.#family === 4 ? '0.0.0.0' : '::');
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

/** A server that ends whatever connection it gets, and keeps nothing alive. */
export async function openServer(host: string): Promise<Server> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.destroy();
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
  const end = (probe: ProbeResult): void => {
    // A reset leaves neither socket nor connection tracking with a memory of it.
    socket.resetAndDestroy();
    resolve(probe);
  };
  socket.once('connect', () => end('alive'));
  socket.once('timeout', () => end('silent'));
  socket.on('error', () => end('gone'));
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

/**
 * Whether a process lives that has written rules under this name. In doubt it does. A host without IPv6
 * says nothing about that, and on one with it the refusal may get lost on its way back to `::1`.
 */
export async function isServed(owner: string): Promise<boolean> {
  const [v4, v6] = await Promise.all([
    tryToReach(canaryPlace(owner, 4)),
    tryToReach(canaryPlace(owner, 6)),
  ]);
  if (v4 === 'alive' || v6 === 'alive') return true;
  return v4 === 'silent' && v6 === 'silent';
}
