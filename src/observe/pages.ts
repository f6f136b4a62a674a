import type { IncomingHttpHeaders } from 'node:http';
import type { Health } from './health.ts';
import type { Probe } from './verdict.ts';
import { plain, type HttpResponse } from '../util/http-server.ts';
import type { Metrics } from './metrics.ts';
import { contentType, inFormat, scrapeFormat, type ScrapeFormat } from './scrape-format.ts';
import { SharedPage } from './shared-page.ts';

export interface Page {
  /** One line for the index. */
  readonly summary: string;
  answer(headers: IncomingHttpHeaders): HttpResponse | Promise<HttpResponse>;
}

/** Pages by path; the index at `/` is generated from them. */
export type Pages = ReadonlyMap<string, Page>;

/** The page of a path, or an error page. */
export function answerTo(
  path: string,
  headers: IncomingHttpHeaders,
  pages: Pages,
): HttpResponse | Promise<HttpResponse> {
  const page = pages.get(path);
  if (page !== undefined) return page.answer(headers);
  return path === '/' ? plain(200, index(pages)) : plain(404, `No such page.\n\n${index(pages)}`);
}

function index(pages: Pages): string {
  return [...pages].map(([path, { summary }]) => `${path.padEnd(12)}${summary}\n`).join('');
}

/** `/healthz`, `/livez` and `/readyz`. `metrics` count the answers of the first two, as kube-proxy's. */
export function healthPages(health: Health, metrics?: Pick<Metrics, 'record'>): Pages {
  const page = (probe: Probe, summary: string): [string, Page] => [
    `/${probe}`,
    {
      summary,
      async answer() {
        // A data path that hangs must not decide whether the process is restarted.
        const verdict = probe === 'livez' ? health.verdict : await health.read();
        const { status } = verdict.probes[probe];
        if (probe !== 'readyz') {
          metrics?.record(`kubeproxy_proxy_${probe}_total`, 1, { code: String(status) });
        }
        const body = health.body(verdict, probe);
        return { status, type: 'application/json', body: `${JSON.stringify(body)}\n` };
      },
    },
  ];
  return new Map([
    page('healthz', 'whether this node may get traffic'),
    page('livez', 'whether the process works; 503 means that a restart may help'),
    page('readyz', 'whether this process accepts clients'),
  ]);
}

/** `/metrics` and, for kube-proxy's sake, `/proxyMode` and `/configz`. */
export function metricsPages(metrics: Metrics, configz: () => object): Pages {
  // A scraper waits only for others that ask for the same format.
  const shared = new Map<string, SharedPage>();
  const pageIn = (format: ScrapeFormat): SharedPage => {
    const key = `${format.text} ${format.encoding}`;
    const page =
      shared.get(key) ?? new SharedPage(() => inFormat(metrics.render(format.text), format));
    shared.set(key, page);
    return page;
  };
  return new Map<string, Page>([
    [
      '/metrics',
      {
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
            body: (signal) => pageIn(format).get(signal),
          };
        },
      },
    ],
    [
      '/proxyMode',
      { summary: 'the mode, as kube-proxy names it', answer: () => plain(200, 'userspace') },
    ],
    [
      '/configz',
      {
        summary: 'the settings in force',
        answer: () => ({
          status: 200,
          type: 'application/json',
          body: `${JSON.stringify(configz())}\n`,
        }),
      },
    ],
  ]);
}
