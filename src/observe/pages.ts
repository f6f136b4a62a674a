import type { Health, Probe } from './health.ts';
import { plain, type HttpResponse } from '../util/http-server.ts';
import type { Metrics } from './metrics.ts';
import { SharedPage } from './shared-page.ts';

export interface Page {
  /** One line for the index. */
  readonly summary: string;
  answer(): HttpResponse;
}

/** Pages by path; the index at `/` is made from them. */
export type Pages = ReadonlyMap<string, Page>;

/** The page of a path, or an error page. */
export function answerTo(path: string, pages: Pages): HttpResponse {
  const page = pages.get(path);
  if (page !== undefined) return page.answer();
  return path === '/' ? plain(200, index(pages)) : plain(404, `No such page.\n\n${index(pages)}`);
}

function index(pages: Pages): string {
  return [...pages].map(([path, { summary }]) => `${path.padEnd(12)}${summary}\n`).join('');
}

/** `/healthz`, `/livez` and `/readyz`. `count` is called for every answer. */
export function healthPages(
  health: Health,
  count: (probe: Probe, status: number) => void = () => {},
): Pages {
  const page = (probe: Probe, summary: string): [string, Page] => [
    `/${probe}`,
    {
      summary,
      answer() {
        const { status, body } = health.evaluate(probe);
        count(probe, status);
        return { status, type: 'application/json', body: `${JSON.stringify(body)}\n` };
      },
    },
  ];
  return new Map([
    page('healthz', 'whether this node may get traffic'),
    page('livez', 'whether the process works; 503 means that a restart may help'),
    page('readyz', 'whether the first complete state is in place'),
  ]);
}

/** `/metrics` and, for kube-proxy's sake, `/proxyMode` and `/configz`. */
export function metricsPages(metrics: Metrics, configz: () => object): Pages {
  const page = new SharedPage(() => metrics.render());
  return new Map<string, Page>([
    [
      '/metrics',
      {
        summary: 'metrics for Prometheus',
        answer: () => ({
          status: 200,
          type: metrics.contentType,
          body: (signal) => page.get(signal),
        }),
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
