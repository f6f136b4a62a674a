import { KpngError, messageOf } from '../errors.ts';
import { Backoff, type BackoffPolicy } from '../util/backoff.ts';
import type { Timer } from '../util/clock.ts';
import type { HttpResponse, HttpRequest } from '../util/http-server.ts';
import type { Activation } from '../util/activation.ts';
import { removeDeadSockets, startSocketServer, type SocketServer } from './socket-server.ts';
import { isPipe } from './socket-path.ts';
import type { ProcessSubject } from './subject.ts';

export interface AdminSocketOptions {
  /** Empty: none. */
  readonly path: string;
  readonly uid: number | undefined;
  readonly subject: Pick<ProcessSubject, 'log' | 'clock'>;
  readonly answer: (request: HttpRequest) => Promise<HttpResponse>;
  /** When the socket may be opened. */
  readonly activation: Activation;
}

/** Delays between attempts to bind the socket: its holder may be a process that is about to end. */
const RETRY: BackoffPolicy = { initialMs: 1000, maxMs: 30_000, factor: 2, jitter: 0.2 };

/**
 * The admin socket of a process. It replaces the previous process's socket once this one serves, and moves to a path
 * of its own once a new process has taken over. If it cannot be created, the failure is logged and retried until it
 * can be.
 */
export class AdminSocket {
  readonly #options: AdminSocketOptions;
  readonly #tried = Promise.withResolvers<void>();
  readonly #backoff = new Backoff(RETRY, Math.random);
  #server: SocketServer | undefined;
  #ownServer: SocketServer | undefined;
  #leaving: Promise<void> | undefined;
  #running: Promise<void> = Promise.resolve();
  #timer: Timer | undefined;
  #isOver = false;
  #logged = '';

  constructor(options: AdminSocketOptions) {
    this.#options = options;
    if (options.path === '') this.#tried.resolve();
    else options.activation.onActive((predecessor) => this.#try(predecessor));
  }

  /** Resolves after the first attempt to bind the socket. */
  get tried(): Promise<void> {
    return this.#tried.promise;
  }

  /**
   * A new process has the path, or is about to. From now on this one listens at the path with its process id
   * appended. Connected clients are still answered. Idempotent.
   */
  leave(): Promise<void> {
    this.#leaving ??= this.#leave();
    return this.#leaving;
  }

  /** Idempotent. */
  async close(): Promise<void> {
    await this.#stopTrying();
    await this.#leaving;
    await Promise.all([this.#server?.close(), this.#ownServer?.close()]);
  }

  async #leave(): Promise<void> {
    if (this.#isOver) return;
    await this.#stopTrying();
    const { path, subject } = this.#options;
    const { log } = subject;
    if (this.#server === undefined || isPipe(path)) {
      await this.#server?.close();
      return;
    }
    const left = this.#server.leave();
    const own = `${path}.${process.pid}`;
    try {
      this.#ownServer = await this.#start(own, undefined);
      log.info('Serving the admin API beside the new process', { path: own });
    } catch (error) {
      log.warn('Serving the admin API beside the new process failed', { err: asKnown(error) });
    }
    await left;
  }

  async #stopTrying(): Promise<void> {
    this.#isOver = true;
    this.#timer?.cancel();
    await this.#running;
  }

  #try(predecessor: number | undefined): Promise<void> {
    this.#running = this.#attempt(predecessor).finally(() => this.#tried.resolve());
    return this.#running;
  }

  async #attempt(predecessor: number | undefined): Promise<void> {
    if (this.#isOver) return;
    const { path, subject } = this.#options;
    const { log, clock } = subject;
    try {
      this.#server = await this.#start(path, predecessor);
      if (this.#logged === '') log.v(1, 'Serving the admin API', { path });
      else log.info('Serving the admin API again', { path });
      await removeDeadSockets(path);
    } catch (error) {
      const retryInMs = Math.round(this.#backoff.next());
      const reason = messageOf(error);
      if (reason !== this.#logged)
        log.warn('Serving the admin API failed; retrying', { err: asKnown(error), retryInMs });
      this.#logged = reason;
      if (!this.#isOver) this.#timer = clock.setTimer(retryInMs, () => void this.#try(predecessor));
    }
  }

  #start(path: string, predecessor: number | undefined): Promise<SocketServer> {
    const { uid, answer, subject } = this.#options;
    return startSocketServer({
      path,
      uid,
      predecessor,
      clock: subject.clock,
      answer,
      onAnswerFailed: (at, error) =>
        subject.log.error('Rendering a page failed', { path: at, err: error }),
    });
  }
}

function asKnown(error: unknown): KpngError {
  if (error instanceof KpngError) return error;
  return new KpngError('KPNG_ADMIN_SOCKET', messageOf(error), { cause: error });
}
