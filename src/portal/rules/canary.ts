import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { KpngError, messageOf } from '../../errors.ts';
import { FAMILIES, type Family, WILDCARD } from '../../util/family.ts';
import type { HostPort } from '../../util/host-port.ts';
import { CANARY_TIMEOUT_MS } from '../bounds.ts';
import type { Element, ProbeResult, RuleCanary } from './backend.ts';

/** The elements that redirect a connection to the proxy port. */
type Path = (family: Family, at: HostPort, proxyPort: number) => Element[];

/** Text that a canary's server sends to its clients, followed by its process id. */
const GREETING = 'kpng-userspace';

const MAX_GREETING = 64;

/**
 * A service of our own on a loopback address, behind the same rules as all others. A connection succeeds while the
 * rules exist, and is otherwise refused at once.
 *
 * That is cheaper than listing rules, and tests what clients need. The kernel completes the connection, so a busy
 * process does not matter.
 *
 * `paths`: for each connection, in each family; the first one identifies the owner. `socket`: makes the bound socket of
 * the proxy port, by default an ordinary one.
 */
export function createCanary(
  owner: string,
  families: readonly Family[],
  paths: readonly Path[],
  socket: (family: Family) => Promise<number | string> = async (family) => WILDCARD[family],
): RuleCanary {
  const servers: Server[] = [];
  const openIn = async (family: Family): Promise<Element[]> => {
    const server = await openServer(await socket(family), () => `${GREETING} ${process.pid}\n`);
    servers.push(server);
    const { host, port } = canaryAddress(owner, family);
    return paths.flatMap((elements, index) =>
      elements(family, { host, port: port + index }, portOf(server)),
    );
  };
  const close = (): void => {
    for (const server of servers.splice(0)) server.close();
  };
  return {
    async open() {
      try {
        return (await Promise.all(families.map(openIn))).flat();
      } catch (cause) {
        close();
        const message = `opening the canary's port: ${messageOf(cause)}`;
        throw new KpngError('KPNG_PORTAL_FAILED', message, { cause });
      }
    },
    async probe(asked) {
      const isOwn = asked === owner;
      const places = families.flatMap((family) => {
        const { host, port } = canaryAddress(asked, family);
        return (isOwn ? paths : [0]).map((_, index) => ({ host, port: port + index }));
      });
      const contacts = await Promise.all(places.map((at) => contact(at, false)));
      const results = new Set(contacts.map(({ result }) => result));
      // Another process may have rules in one family only.
      if (!isOwn && results.has('alive')) return 'alive';
      if (results.has('gone')) return 'gone';
      return results.has('silent') ? 'silent' : 'alive';
    },
    close,
  };
}

/**
 * A server that sends a text to its clients and closes, and does not keep the process alive. `at`: an address, or the
 * descriptor of a bound socket.
 */
export async function openServer(
  at: string | number,
  greetingFor: (client: Socket) => string,
): Promise<Server> {
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.write(greetingFor(socket));
    socket.destroySoon();
  });
  server.unref();
  server.listen(typeof at === 'number' ? { fd: at } : { host: at, port: 0, ipv6Only: true });
  await once(server, 'listening');
  // A failed accept does not matter: the connection was established.
  server.on('error', () => undefined);
  return server;
}

export function portOf(server: Server): number {
  return (server.address() as AddressInfo).port;
}

interface Contact {
  readonly result: ProbeResult;
  /** The beginning of the greeting. */
  readonly text: string;
  readonly error: NodeJS.ErrnoException | undefined;
}

/** Connects and, on request, reads the greeting; otherwise resets, which leaves no state in the kernel. */
export function contact(to: HostPort, listens: boolean, timeout = CANARY_TIMEOUT_MS) {
  const { promise, resolve } = Promise.withResolvers<Contact>();
  // In halves: timers count from the beginning of a turn of the event loop, so the first may be over at once.
  const socket = connect({ ...to, timeout: timeout / 2 });
  let result: ProbeResult = 'gone';
  let text = '';
  let error: NodeJS.ErrnoException | undefined;
  const end = (): void => resolve({ result, text, error });
  socket.once('connect', () => {
    result = 'alive';
    if (listens) return;
    socket.resetAndDestroy();
    end();
  });
  socket.setEncoding('latin1').on('data', (more: string) => {
    text = (text + more).slice(0, MAX_GREETING);
    if (text.includes('\n') || text.length === MAX_GREETING) socket.destroy();
  });
  socket.once('timeout', () => {
    socket.setTimeout(timeout / 2, () => {
      // After a pause of the event loop, timers come before sockets that have long been ready.
      setImmediate(() => {
        if (result === 'gone') result = 'silent';
        socket.destroy();
      });
    });
  });
  socket.on('error', (cause) => (error = cause));
  socket.once('close', end);
  return promise;
}

/** The canary's address, derived from its owner's name. On `::1` only the port identifies the owner. */
export function canaryAddress(owner: string, family: Family): HostPort {
  const [a = 0, b = 0, c = 0, high = 0, low = 0] = createHash('sha256').update(owner).digest();
  const port = 10_000 + ((high * 256 + low) % 20_000);
  if (family === 6) return { host: '::1', port };
  return { host: `127.${128 + (a % 127)}.${b}.${1 + (c % 254)}`, port };
}

/**
 * The process that wrote rules under this name, with its process id if known; undefined: it has ended. In doubt it is
 * alive: without IPv6, or if a refusal is lost on its way to `::1`.
 */
export async function findOwner(owner: string) {
  const places = FAMILIES.map((family) => canaryAddress(owner, family));
  const results = await Promise.all(places.map((at) => contact(at, true)));
  const alive = results.filter(({ result }) => result === 'alive');
  if (alive.length === 0 && results.some(({ result }) => result === 'gone')) return undefined;
  const [pid] = alive.flatMap(({ text }) => /^kpng-userspace (\d+)\n/.exec(text)?.[1] ?? []);
  return { pid: pid === undefined ? undefined : Number(pid) };
}
