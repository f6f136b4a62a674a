import type { HostPort } from '../util/host-port.ts';
import { plain, type HttpResponse, type HttpRequest } from '../util/http-connections.ts';
import type { HttpServer } from '../util/http-server.ts';
import { SerialQueue } from '../util/serial-queue.ts';
import { Activation } from '../util/activation.ts';
import { openAdminSocket } from './admin-socket.ts';
import { changingOperations } from './changing.ts';
import { answerAdmin } from './handler.ts';
import { startSampler } from './sampler.ts';
import { standardOperations } from './standard.ts';
import type { ProcessSubject } from './subject.ts';

export interface AdminOptions {
  /** Path of the admin socket; empty: none. */
  readonly socketPath: string;
  /** Where the status page is served; undefined: only on the socket. */
  readonly pageAddress: HostPort | undefined;
  readonly subject: ProcessSubject;
  /** When socket and page may be served. Default: at once. */
  readonly activation?: Activation;
}

/** The admin API of a process, on its socket and behind the status page. */
export type Admin = Awaited<ReturnType<typeof startAdmin>>;

/**
 * Starts the admin API. If its socket or address cannot be opened, the failure is logged and retried without end: the
 * admin API must never stop the proxy.
 */
export async function startAdmin({
  socketPath,
  pageAddress: address,
  subject,
  activation = Activation.immediate(),
}: AdminOptions) {
  const sampler = startSampler(subject.clock, () => subject.proxy()?.engine);
  const operations = [...standardOperations(subject, sampler), ...changingOperations(subject)];
  const answerer = (isTrusted: boolean) => {
    const reading = new SerialQueue();
    return async (request: HttpRequest): Promise<HttpResponse> => {
      const found = await answerAdmin(request, operations, reading, isTrusted);
      if (found !== undefined) return found;
      const { answerPage } = await import('./page.ts');
      return answerPage(request) ?? plain(404, 'No such page. The API is at /v1/.\n');
    };
  };
  const socket =
    socketPath === ''
      ? undefined
      : openAdminSocket(socketPath, subject, answerer(true), activation);
  let page: HttpServer | undefined;
  if (address !== undefined) {
    const { startPageServer } = await import('./page.ts');
    page = startPageServer(address, subject, { answer: answerer(false), activation });
  }
  return {
    /**
     * Another process has taken over and serves the socket; this one, which only drains its connections, moves to
     * another path. Idempotent.
     */
    async leave(newProcess: number): Promise<void> {
      subject.health.change({ replacedBy: newProcess });
      await Promise.all([socket?.leave(), page?.leave()]);
    },
    /** Idempotent. */
    async close(): Promise<void> {
      sampler.close();
      await Promise.all([socket?.close(), page?.close()]);
    },
  };
}
