import type { Stats } from 'node:fs';
import { KpngError, messageOf } from '../errors.ts';
import type { Activation } from '../util/activation.ts';
import { HttpConnections, type HttpResponse, type HttpRequest } from '../util/http-connections.ts';
import { keepListening } from '../util/http-server.ts';
import { createServer } from '../util/node-http.ts';
import { listenPrivately, SocketFile, isServed } from '../util/socket-file.ts';
import { callAdmin } from './client.ts';
import { failure } from './handler.ts';
import { checkDirectory, isLocalName, isPipe, refusal } from './socket-path.ts';
import type { StatusView } from './standard.ts';
import type { ProcessSubject } from './subject.ts';

/** Clients of one socket; `file`: of the socket, unless it is a pipe. */
interface Server {
  readonly connections: HttpConnections;
  readonly file: SocketFile | undefined;
}

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
  let server: Server | undefined;
  let ownServer: Server | undefined;
  let leaving: Promise<void> | undefined;
  let isClosed = false;
  let logged = '';

  // The socket of a dead process or of the predecessor is replaced atomically: a client always finds one of the two.
  const start = async (at: string, predecessor?: number): Promise<Server> => {
    const file = isPipe(at) ? undefined : new SocketFile(at);
    if (file !== undefined) await checkDirectory(at);
    const connections = new HttpConnections({
      create: createServer,
      clock,
      answer: async (request) => refuse(request) ?? answer(request),
      onAnswerFailed: (page, err) => log.error('Rendering a page failed', { path: page, err }),
    });
    try {
      if (file === undefined) await listenPrivately(connections.server, at);
      else await file.take(connections.server, (found) => checkReplaceable(at, found, predecessor));
    } catch (error) {
      throw error instanceof KpngError ? error : refusal(at, messageOf(error), error);
    }
    return { connections, file };
  };

  const listen = async (predecessor: number | undefined): Promise<void> => {
    server = await start(path, predecessor);
    if (logged === '') log.v(1, 'Serving the admin API', { path });
    else log.info('Serving the admin API again', { path });
  };
  const stopTrying = keepListening(clock, activation, listen, (err, retryInMs) => {
    if (err.message !== logged)
      log.warn('Serving the admin API failed; retrying', { err, retryInMs });
    logged = err.message;
  });

  const leave = async (): Promise<void> => {
    if (isClosed) return;
    await stopTrying();
    if (server?.file === undefined) return server?.connections.close();
    server.file.remove();
    const left = server.connections.leave({ acceptsAll: true });
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
      isClosed = true;
      await stopTrying();
      await leaving;
      for (const each of [server, ownServer]) {
        await each?.connections.close();
        each?.file?.remove();
      }
    },
  };
}

/**
 * If the socket is forwarded to a local port, as ssh can do, any page in a browser on that host can send requests to
 * it. The headers that browsers add identify those; undefined: accept the request.
 */
function refuse({ method, headers }: HttpRequest): HttpResponse | undefined {
  const { host = '', origin } = headers;
  if (!isLocalName(host)) {
    return failure(421, 'KPNG_ADMIN_REFUSED', `${host} is not the name of this host`);
  }
  if (origin !== undefined && origin !== `http://${host}`) {
    return failure(403, 'KPNG_ADMIN_REFUSED', `pages of ${origin} may not send requests here`);
  }
  if (method === 'POST' && !/^application\/json\b/.test(headers['content-type'] ?? '')) {
    return failure(415, 'KPNG_USAGE', 'a POST needs the content type application/json');
  }
  return undefined;
}

/** Time limit for the owner of a socket to identify itself. Milliseconds. */
const HOLDER_TIMEOUT_MS = 1000;

/**
 * Checks that a file at the path is the socket of the predecessor or of a dead process. Rejects with KPNG_ADMIN_SOCKET
 * if not.
 */
async function checkReplaceable(
  path: string,
  found: Stats,
  predecessor: number | undefined,
): Promise<void> {
  if (!found.isSocket()) throw refusal(path, 'there is something that is not a socket');
  if (!(await isServed(path))) return;
  const call = { socket: path, method: 'GET', operation: 'status' } as const;
  const status = await callAdmin({ ...call, timeoutMs: HOLDER_TIMEOUT_MS }).catch(() => null);
  const holder = (status as Partial<StatusView> | null)?.process;
  if (holder !== undefined && holder.pid === predecessor) return;
  const who = holder && `process ${holder.pid} (${holder.command})`;
  throw refusal(path, `${who ?? 'an unknown process'} has it`);
}
