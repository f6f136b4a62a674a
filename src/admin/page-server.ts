import { bindFailureLog } from '../observe/bind-failure.ts';
import { formatHostPort, type HostPort } from '../util/host-port.ts';
import {
  httpUrl,
  startHttpServer,
  type Answer,
  type HttpRequest,
  type HttpServer,
  type Inherit,
} from '../util/http-server.ts';
import type { Turn } from '../util/turn.ts';
import { failure } from './handler.ts';
import { isLocalName, isLoopback } from './local-name.ts';
import type { ProcessSubject } from './subject.ts';

export interface PageServerOptions {
  /** An empty host means the loopback interface: the page is for everybody only where that is said. */
  readonly address: HostPort;
  readonly answer: (request: HttpRequest) => Promise<Answer>;
  readonly subject: Pick<ProcessSubject, 'log' | 'clock'>;
  readonly inherit?: Inherit | undefined;
  /** When it may begin. Default: at once. */
  readonly turn?: Turn | undefined;
}

/** Serves the status page, and what it reads, over TCP. Nothing can be changed there. */
export function startPageServer(options: PageServerOptions): HttpServer {
  const { address, answer, subject, inherit, turn } = options;
  const { log, clock } = subject;
  const host = address.host === '' ? '127.0.0.1' : address.host;
  const isPrivate = isLoopback(host);
  const place = { host, port: address.port };
  return startHttpServer({
    address: place,
    clock,
    inherit,
    turn,
    async answer(request) {
      const { host: asked = '' } = request.headers;
      // With DNS rebinding, a page of another site could read what is here.
      if (isPrivate && !isLocalName(asked)) {
        return failure(421, 'KPNG_ADMIN_REFUSED', `${asked} is not the name of this host`);
      }
      return answer(request);
    },
    onListening(bound) {
      log.info('Serving the status page', { url: httpUrl(bound) });
      if (isPrivate) return;
      log.warn(
        'Status page has no authentication; any client that reaches the address can read it',
        {
          address: formatHostPort(bound),
        },
      );
    },
    onBindFailed: bindFailureLog(log, 'Serving the status page failed; retrying', place),
    onAnswerFailed: (path, error) => log.error('Making a page failed', { path, err: error }),
  });
}
