import { messageOf } from '../errors.ts';
import { Backoff, type BackoffPolicy } from '../util/backoff.ts';
import type { Timer } from '../util/clock.ts';
import type { HttpResponse, HttpRequest } from '../util/http-server.ts';
import type { Activation } from '../util/activation.ts';
import { isPipe } from './socket-path.ts';
import { removeDeadSockets, startSocketServer, type SocketServer } from './socket-server.ts';
import type { ProcessSubject } from './subject.ts';

/** Delays between attempts to bind the socket: its holder may be a process that is about to end. */
const RETRY: BackoffPolicy = { initialMs: 1000, maxMs: 30_000, factor: 2, jitter: 0.2 };

/**
 * Opens the admin socket of a process once `activation` allows it. It replaces the previous process's socket, and moves
 * to a path of its own once a new process has taken over. If it cannot be created, the failure is logged and retried
 * until it can be.
 */
export function openAdminSocket(
  path: string,
  { log, clock }: Pick<ProcessSubject, 'log' | 'clock'>,
  answer: (request: HttpRequest) => Promise<HttpResponse>,
  activation: Activation,
) {
  const backoff = new Backoff(RETRY, Math.random);
  let server: SocketServer | undefined;
  let ownServer: SocketServer | undefined;
  let leaving: Promise<void> | undefined;
  let running = Promise.resolve();
  let timer: Timer | undefined;
  let isOver = false;
  let logged = '';

  const start = (at: string, predecessor?: number): Promise<SocketServer> =>
    startSocketServer({
      path: at,
      predecessor,
      clock,
      answer,
      onAnswerFailed: (page, error) =>
        log.error('Rendering a page failed', { path: page, err: error }),
    });

  const attempt = async (predecessor: number | undefined): Promise<void> => {
    if (isOver) return;
    try {
      server = await start(path, predecessor);
      if (logged === '') log.v(1, 'Serving the admin API', { path });
      else log.info('Serving the admin API again', { path });
      await removeDeadSockets(path);
    } catch (error) {
      const retryInMs = Math.round(backoff.next());
      const reason = messageOf(error);
      if (reason !== logged) {
        log.warn('Serving the admin API failed; retrying', { err: error, retryInMs });
      }
      logged = reason;
      if (isOver) return;
      timer = clock.setTimer(retryInMs, () => void (running = attempt(predecessor)));
    }
  };
  activation.onActive((predecessor) => (running = attempt(predecessor)));

  const stopTrying = async (): Promise<void> => {
    isOver = true;
    timer?.cancel();
    await running;
  };

  const leave = async (): Promise<void> => {
    if (isOver) return;
    await stopTrying();
    if (server === undefined || isPipe(path)) return server?.close();
    const left = server.leave();
    const own = `${path}.${process.pid}`;
    try {
      ownServer = await start(own);
      log.info('Serving the admin API beside the new process', { path: own });
    } catch (error) {
      log.warn('Serving the admin API beside the new process failed', { err: error });
    }
    await left;
  };

  return {
    /**
     * A new process has the path, or is about to. From now on this one listens at the path with its process id
     * appended. Connected clients are still answered. Idempotent.
     */
    leave(): Promise<void> {
      leaving ??= leave();
      return leaving;
    },
    /** Idempotent. */
    async close(): Promise<void> {
      await stopTrying();
      await leaving;
      await Promise.all([server?.close(), ownServer?.close()]);
    },
  };
}
