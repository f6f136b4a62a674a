import type { IncomingHttpHeaders } from 'node:http';
import { pipeline, Readable } from 'node:stream';
import { constants, createGzip } from 'node:zlib';
import { Registry } from 'prom-client';
import type { Health } from './health.ts';
import type { Probe } from './verdict.ts';
import { json, plain, type HttpResponse } from '../util/http-connections.ts';
import { SerialQueue } from '../util/serial-queue.ts';
import type { Metrics } from './metrics.ts';
import type { TextFormat } from './exposition.ts';

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
  const inFormat = (text: TextFormat) => ({
    identity: sharedPage(() => metrics.render(text)),
    gzip: sharedPage(() => compressed(metrics.render(text))),
  });
  // A scraper waits only for others that ask for the same format.
  const shared = { prometheus: inFormat('prometheus'), openmetrics: inFormat('openmetrics') };
  return {
    '/metrics': {
      summary: 'metrics for Prometheus',
      answer(headers) {
        const format = scrapeFormat(headers);
        return {
          status: 200,
          type: CONTENT_TYPES[format.text],
          headers: {
            vary: 'accept, accept-encoding',
            ...(format.encoding === 'gzip' && { 'content-encoding': 'gzip' }),
          },
          body: shared[format.text][format.encoding],
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

const CONTENT_TYPES = {
  prometheus: Registry.PROMETHEUS_CONTENT_TYPE,
  openmetrics: Registry.OPENMETRICS_CONTENT_TYPE,
};

/**
 * A page that several clients can share: only one is rendered at a time, and clients that request it meanwhile share
 * the next one. So memory and time do not grow with the number of clients, and no page is older than its request.
 *
 * Returns a function that renders the page in pieces, which must not be changed.
 */
export function sharedPage(render: () => AsyncIterable<string | Uint8Array>) {
  const queue = new SerialQueue();
  let next: Promise<Uint8Array[]> | undefined;
  const prepare = async (): Promise<Uint8Array[]> => {
    next = undefined;
    const pieces: Uint8Array[] = [];
    for await (const piece of render()) pieces.push(Buffer.from(piece));
    return pieces;
  };
  return (): Promise<readonly Uint8Array[]> => (next ??= queue.run(prepare));
}

/** The first available format in the headers of a scraper; scrapers list them by preference. */
export function scrapeFormat(headers: IncomingHttpHeaders) {
  const { accept = '', 'accept-encoding': encodings = '' } = headers;
  const items = accept
    .toLowerCase()
    .split(',')
    .map((item) => item.trim());
  const isOpen = (item: string): boolean =>
    item.startsWith('application/openmetrics-text') && !/version=(?!1\.0\.0)|q=0$/.test(item);
  const best = items.find((item) => isOpen(item) || item.startsWith('text/plain')) ?? '';
  const isGzip = /\bgzip\b(?! *; *q=0(?:\.0*)? *(?:,|$))/i.test(encodings);
  const text = isOpen(best) ? 'openmetrics' : 'prometheus';
  return { text, encoding: isGzip ? 'gzip' : 'identity' } as const;
}

/** Compresses outside the event loop: zlib has threads. Its fastest level makes a fifteenth of most pages. */
export async function* compressed(
  pieces: AsyncIterable<string>,
): AsyncGenerator<Uint8Array, void, void> {
  const gzip = createGzip({ level: constants.Z_BEST_SPEED });
  // An error of either ends the other, and reaches the loop below.
  pipeline(Readable.from(pieces, { objectMode: false }), gzip, () => undefined);
  yield* gzip as AsyncIterable<Uint8Array>;
}
