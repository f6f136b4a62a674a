import {
  plain,
  startHttpServer as startServer,
  type Answer,
  type HttpServer,
  type HttpServerOptions as ServerOptions,
} from '../util/http-server.ts';

export { httpUrl, MAX_HTTP_CONNECTIONS, plain } from '../util/http-server.ts';
export type { Answer, HttpServer } from '../util/http-server.ts';

export interface Page {
  /** One line for the index. */
  readonly summary: string;
  answer(): Answer | Promise<Answer>;
}

/** Pages by path; the index at `/` is made from them. */
export type Pages = ReadonlyMap<string, Page>;

export interface HttpServerOptions extends Omit<ServerOptions, 'answer' | 'onAnswerFailed'> {
  readonly pages: Pages;
  /** Told of a page that could not be made. */
  readonly onPageFailed: (path: string, error: unknown) => void;
}

/** Serves pages to GET and HEAD. */
export function startHttpServer({ pages, onPageFailed, ...rest }: HttpServerOptions): HttpServer {
  return startServer({
    ...rest,
    answer: (path) => answerTo(path, pages),
    onAnswerFailed: onPageFailed,
  });
}

function answerTo(path: string, pages: Pages): Answer | Promise<Answer> {
  const page = pages.get(path);
  if (page !== undefined) return page.answer();
  return path === '/' ? plain(200, index(pages)) : plain(404, `No such page.\n\n${index(pages)}`);
}

function index(pages: Pages): string {
  return [...pages].map(([path, { summary }]) => `${path.padEnd(12)}${summary}\n`).join('');
}
