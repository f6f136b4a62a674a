import type { HostPort } from '../util/host-port.ts';
import {
  plain,
  type HttpResponse,
  type HttpRequest,
  type HttpServer,
  type Inherit,
} from '../util/http-server.ts';
import { SerialQueue } from '../util/serial-queue.ts';
import { Activation } from '../util/activation.ts';
import { AdminSocket } from './admin-socket.ts';
import { changingOperations } from './changing.ts';
import { answerAdmin, type Operation } from './handler.ts';
import { Sampler } from './sampler.ts';
import { standardOperations } from './standard.ts';
import type { ProcessSubject } from './subject.ts';

export interface AdminOptions {
  /** Path of the admin socket; empty: none. */
  readonly socketPath: string;
  /** Where the status page is served; undefined: only on the socket. */
  readonly pageAddress: HostPort | undefined;
  readonly subject: ProcessSubject;
  /** Number of this user; undefined on Windows. */
  readonly uid: number | undefined;
  /** Returns inherited listening sockets. Default: none. */
  readonly inherit?: Inherit;
  /** When socket and page may be served. Default: at once. */
  readonly activation?: Activation;
}

/** The admin API of a process, on its socket and behind the status page. */
export interface Admin {
  readonly operations: readonly Operation[];
  /** Resolves after the first attempt to bind the socket. */
  readonly tried: Promise<void>;
  /** The server of the status page; undefined: not served, or not yet. */
  readonly page: HttpServer | undefined;
  /**
   * Another process has taken over and serves the socket; this one, which only drains its connections, moves to
   * another path. Idempotent.
   */
  leave(newProcess: number): Promise<void>;
  /** Idempotent. */
  close(): Promise<void>;
}

/**
 * Starts the admin API. If its socket or address cannot be opened, the failure is logged and retried without end: the
 * admin API must never stop the proxy.
 */
export function startAdmin(options: AdminOptions): Admin {
  const {
    socketPath: path,
    uid,
    pageAddress,
    subject,
    inherit,
    activation = Activation.immediate(),
  } = options;
  const { clock } = subject;
  const sampler = new Sampler({
    clock,
    snapshot: (names) => subject.proxy()?.engine.snapshot(names) ?? [],
    names: () => subject.proxy()?.engine.names(),
    activity: () => subject.proxy()?.engine.activity(),
  });
  const operations = [...standardOperations(subject, sampler), ...changingOperations(subject)];
  const answerer = (trusted: boolean): ((request: HttpRequest) => Promise<HttpResponse>) => {
    const access = { operations, trusted, reading: new SerialQueue() };
    return async (request) => {
      const found = await answerAdmin(request, access);
      if (found !== undefined) return found;
      const { answerPage } = await import('./page.ts');
      return answerPage(request) ?? plain(404, 'No such page. The API is at /v1/.\n');
    };
  };
  const socket = new AdminSocket({ path, uid, subject, activation, answer: answerer(true) });
  let page: HttpServer | undefined;
  const startPage = async (address: HostPort): Promise<void> => {
    const { startPageServer } = await import('./page.ts');
    page = startPageServer({
      address,
      subject,
      inherit,
      activation,
      answer: answerer(false),
    });
  };
  const started = pageAddress === undefined ? undefined : startPage(pageAddress);
  let closed: Promise<void> | undefined;
  return {
    operations,
    tried: socket.tried,
    get page() {
      return page;
    },
    async leave(by) {
      subject.health.change({ replacedBy: by });
      await Promise.all([socket.leave(), started?.then(() => page?.leave())]);
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
