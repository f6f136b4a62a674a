import {
  plain,
  startHttpServer as startServer,
  type Answer,
  type HttpServer,
  type HttpServerOptions as ServerOptions,
} from '../util/http-server.ts';

export { httpUrl, MAX_HTTP_CONNECTIONS, plain } from '../util/http-server.ts';
export type { Answer, CreateServer, HttpServer, Inherit } from '../util/http-server.ts';

export interface Page {
  /** One line for the index. */
  readonly summary: string;
  answer(): Answer | Promise<Answer>;
}

/** Pages by path; the index at `/` is made from them. */
export type Pages = ReadonlyMap<string, Page>;

export interface HttpServerOptions extends Omit<ServerOptions, 'answer' | 'onAnswerFailed'> {
  readonly pages: Pages;
  /** What keeps clients from a page; undefined: nothing does. Default: nothing ever does. */
  readonly guard?: Guard;
  /** Told of a page that could not be made. */
  readonly onPageFailed: (path: string, error: unknown) => void;
}

/** Decides who may see a page, by its path and the header `authorization`. */
export type Guard = (path: string, authorization: string) => Promise<Answer | undefined>;

/** Serves pages to GET and HEAD. */
export function startHttpServer(options: HttpServerOptions): HttpServer {
  const { pages, guard, onPageFailed, ...rest } = options;
  return startServer({
    ...rest,
    answer: async (path, { authorization }) =>
      (await guard?.(path, authorization)) ?? answerTo(path, pages),
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
