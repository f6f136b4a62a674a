/** HTTP servers of a test, and clients that are not as they should be. */
import { once } from 'node:events';
import { connect } from 'node:net';
import type { Test } from 'tap';
import {
  httpLimitReached,
  type HttpLimit,
  plain,
  type HttpResponse,
  type HttpRequest,
} from '../../src/util/http-connections.ts';
import { startHttpServer, type HttpServerOptions } from '../../src/util/http-server.ts';
import type { HostPort } from '../../src/util/host-port.ts';
import { FakeClock } from './fake-clock.ts';
import { listening } from './sockets.ts';

/** What a server answers by path; the rest is 404. */
export type TestPages = Readonly<
  Record<string, (request: HttpRequest) => HttpResponse | Promise<HttpResponse>>
>;

export const HELLO: TestPages = { '/hello': () => plain(200, 'hello\n') };

/** Starts a server on a free port of loopback, until the test ends. */
export async function serve(t: Test, pages: TestPages, options: Partial<HttpServerOptions> = {}) {
  /** Pages that could not be made. */
  const failures: [string, unknown][] = [];
  /** Paths that were asked for, and the limits that were reached. */
  const asked: string[] = [];
  const reached: HttpLimit[] = [];
  listening(t, httpLimitReached, ({ limit }) => reached.push(limit));
  const { promise, resolve, reject } = Promise.withResolvers<HostPort>();
  const server = startHttpServer({
    address: { host: '127.0.0.1', port: 0 },
    answer(request) {
      asked.push(request.path);
      return pages[request.path]?.(request) ?? plain(404, 'No such page.\n');
    },
    clock: new FakeClock(),
    onBindFailed: reject,
    onAnswerFailed: (path, error) => failures.push([path, error]),
    onListening: resolve,
    ...options,
  });
  t.teardown(() => server.close());
  const address = await promise;
  /** Connects and sends requests for a path. */
  const ask = async (path: string, times = 1) => {
    const client = connect(address.port, '127.0.0.1');
    t.teardown(() => client.destroy());
    client.on('error', () => undefined);
    await once(client, 'connect');
    client.write(`GET ${path} HTTP/1.1\r\nhost: x\r\n\r\n`.repeat(times));
    return client;
  };
  const url = (path: string): string => `http://127.0.0.1:${address.port}${path}`;
  return { server, address, failures, asked, reached, url, ask };
}
