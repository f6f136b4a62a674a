import type { IncomingHttpHeaders } from 'node:http';
import type { Health } from './health.ts';
import type { Probe } from './verdict.ts';
import { json, plain, type HttpResponse } from '../util/http-server.ts';
import { SerialQueue } from '../util/serial-queue.ts';
import type { Metrics } from './metrics.ts';
import { compressed, contentType, scrapeFormat, type ScrapeFormat } from './scrape-format.ts';

export interface Page {
  /** One line for the index. */
  readonly summary: string;
  answer(headers: IncomingHttpHeaders): HttpResponse | Promise<HttpResponse>;
}

/** Pages by path; the index at `/` is generated from them. */
export type Pages = Readonly<Record<string, Page>>;

/** The page of a path, or an error page. */
export function answerTo(
  path: string,
  headers: IncomingHttpHeaders,
  pages: Pages,
): HttpResponse | Promise<HttpResponse> {
  const page = Object.hasOwn(pages, path) ? pages[path] : undefined;
  if (page !== undefined) return page.answer(headers);
  return path === '/' ? plain(200, index(pages)) : plain(404, `No such page.\n\n${index(pages)}`);
}

function index(pages: Pages): string {
  return Object.entries(pages)
    .map(([path, { summary }]) => `${path.padEnd(12)}${summary}\n`)
    .join('');
}

/** `/healthz`, `/livez` and `/readyz`. `metrics` count the answers of the first two, as kube-proxy's. */
export function healthPages(health: Health, metrics?: Pick<Metrics, 'record'>): Pages {
  const page = (probe: Probe, summary: string): Page => ({
    summary,
    async answer() {
      // A data path that hangs must not decide whether the process is restarted.
      const verdict = probe === 'livez' ? health.verdict : await health.read();
      const { status } = verdict.probes[probe];
      if (probe !== 'readyz') {
        metrics?.record(`kubeproxy_proxy_${probe}_total`, 1, { code: String(status) });
      }
      return json(status, health.body(verdict, probe));
    },
  });
  return {
    '/healthz': page('healthz', 'whether this node may get traffic'),
    '/livez': page('livez', 'whether the process works; 503 means that a restart may help'),
    '/readyz': page('readyz', 'whether this process accepts clients'),
  };
}

/** `/metrics` and, for kube-proxy's sake, `/proxyMode` and `/configz`. */
export function metricsPages(metrics: Metrics, configz: () => object): Pages {
  // A scraper waits only for others that ask for the same format.
  const shared = new Map<string, ReturnType<typeof sharedPage>>();
  const pageIn = ({ text, encoding }: ScrapeFormat) => {
    const page =
      shared.get(text + encoding) ??
      sharedPage(() =>
        encoding === 'gzip' ? compressed(metrics.render(text)) : metrics.render(text),
      );
    shared.set(text + encoding, page);
    return page;
  };
  return {
    '/metrics': {
      summary: 'metrics for Prometheus',
      answer(headers) {
        const format = scrapeFormat(headers);
        return {
          status: 200,
          type: contentType(format),
          headers: {
            vary: 'accept, accept-encoding',
            ...(format.encoding === 'gzip' && { 'content-encoding': 'gzip' }),
          },
          body: (signal) => pageIn(format)(signal),
        };
      },
    },
    '/proxyMode': {
      summary: 'the mode, as kube-proxy names it',
      answer: () => plain(200, 'userspace'),
    },
    '/configz': { summary: 'the settings in force', answer: () => json(200, configz()) },
  };
}

type Pieces = readonly Uint8Array[];

/**
 * A page that several clients can share: only one is rendered at a time, and clients that request it meanwhile share
 * the next one. So memory and time do not grow with the number of clients, and no page is older than its request.
 *
 * Returns a function that renders the page in pieces, which must not be changed. Rendering stops when all clients of
 * a page have disconnected.
 */
export function sharedPage(render: () => AsyncIterable<string | Uint8Array>) {
  const queue = new SerialQueue();
  let next: { page: Promise<Pieces>; waiting: number } | undefined;
  const prepare = () => {
    const page = queue.run(async () => {
      next = undefined;
      const pieces: Uint8Array[] = [];
      if (pending.waiting === 0) return pieces;
      for await (const piece of render()) {
        if (pending.waiting === 0) return [];
        pieces.push(typeof piece === 'string' ? Buffer.from(piece) : piece);
      }
      return pieces;
    });
    const pending = { page, waiting: 0 };
    return pending;
  };
  return (signal: AbortSignal): Promise<Pieces> => {
    const pending = (next ??= prepare());
    pending.waiting += 1;
    signal.addEventListener('abort', () => (pending.waiting -= 1), { once: true });
    return pending.page;
  };
}
