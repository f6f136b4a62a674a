import { KpngError, messageOf } from '../errors.ts';
import { Backoff, type BackoffPolicy } from '../util/backoff.ts';
import type { Timer } from '../util/clock.ts';
import type { HostPort } from '../util/host-port.ts';
import { plain, type Answer, type HttpServer, type Inherit } from '../util/http-server.ts';
import { changingOperations } from './changing.ts';
import { answerAdmin, type AdminRequest } from './handler.ts';
import { Operations } from './operations.ts';
import { Sampler } from './sampler.ts';
import { startSocketServer, type SocketServer } from './socket-server.ts';
import { standardOperations } from './standard.ts';
import type { ProcessSubject } from './subject.ts';

export interface AdminOptions {
  /** Where the admin socket is to be; empty: nowhere. */
  readonly socketPath: string;
  /** Where the status page is served; undefined: nowhere but on the socket. */
  readonly pageAddress: HostPort | undefined;
  readonly subject: ProcessSubject;
  /** Number of this user; undefined on Windows. */
  readonly uid: number | undefined;
  /** Gives the listening sockets of another process away. Default: there are none. */
  readonly inherit?: Inherit;
}

/** The admin API of a process, on its socket and behind the status page. */
export interface Admin {
  /** To add others to. */
  readonly operations: Operations;
  /** Resolves when the socket was tried once. */
  readonly tried: Promise<void>;
  /** Of the status page; undefined: it is not served, or not yet. */
  readonly page: HttpServer | undefined;
  /** Idempotent. */
  close(): Promise<void>;
}

/** Waits before the socket is tried again: its holder may be a process that is about to end. */
const RETRY: BackoffPolicy = { initialMs: 1000, maxMs: 30_000, factor: 2, jitter: 0.2 };

/**
 * Starts what lets an operator look into the process. A socket or an address that cannot be had is
 * told and tried again for ever: watching must never keep the proxy from its work.
 */
export function startAdmin(options: AdminOptions): Admin {
  const { subject, pageAddress, inherit } = options;
  const { clock } = subject;
  const sampler = new Sampler({
    clock,
    snapshot: (names) => subject.proxy()?.engine.snapshot(names) ?? [],
    names: () => subject.proxy()?.engine.names() ?? [],
  });
  const operations = new Operations()
    .add(...standardOperations(subject, sampler))
    .add(...changingOperations(subject));
  const answer = async (request: AdminRequest): Promise<Answer> => {
    const found = await answerAdmin(request, operations);
    if (found !== undefined) return found;
    const { answerPage } = await import('./page.ts');
    return answerPage(request) ?? plain(404, 'No such page. The API is at /v1/.\n');
  };
  const socket = holdSocket(options, answer);
  let page: HttpServer | undefined;
  const startPage = async (address: HostPort): Promise<void> => {
    const { startPageServer } = await import('./page-server.ts');
    page = startPageServer({ address, answer, subject, inherit });
  };
  const started = pageAddress === undefined ? undefined : startPage(pageAddress);
  let closed: Promise<void> | undefined;
  return {
    operations,
    tried: socket.tried,
    get page() {
      return page;
    },
    close() {
      closed ??= (async () => {
        sampler.close();
        await Promise.all([socket.close(), started?.then(() => page?.close())]);
      })();
      return closed;
    },
  };
}

interface HeldSocket {
  readonly tried: Promise<void>;
  close(): Promise<void>;
}

function holdSocket(
  { socketPath: path, uid, subject }: AdminOptions,
  answer: (request: AdminRequest) => Promise<Answer>,
): HeldSocket {
  const { log, clock } = subject;
  const backoff = new Backoff(RETRY, Math.random);
  let server: SocketServer | undefined;
  let timer: Timer | undefined;
  let closed = false;
  let told = '';

  const attempt = async (): Promise<void> => {
    if (path === '' || closed) return;
    try {
      const onAnswerFailed = (at: string, error: unknown): void => {
        log.error('A page could not be made', { path: at, err: error });
      };
      server = await startSocketServer({ path, uid, answer, onAnswerFailed });
      if (told === '') log.v(1, 'Serving the admin API', { path });
      else log.info('Serving the admin API after all', { path });
      if (closed) await server.close();
    } catch (error) {
      const retryInMs = Math.round(backoff.next());
      const reason = messageOf(error);
      if (reason !== told)
        log.warn('Cannot serve the admin API yet', { err: asKnown(error), retryInMs });
      told = reason;
      if (!closed)
        timer = clock.setTimer(retryInMs, () => {
          running = attempt();
        });
    }
  };
  let running = attempt();
  return {
    tried: running,
    async close() {
      closed = true;
      timer?.cancel();
      await running;
      await server?.close();
    },
  };
}

function asKnown(error: unknown): KpngError {
  if (error instanceof KpngError) return error;
  return new KpngError('KPNG_ADMIN_SOCKET', messageOf(error), { cause: error });
}
