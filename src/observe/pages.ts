import type { Health, Probe } from './health.ts';
import { plain, type Page, type Pages } from './http-server.ts';
import type { Metrics } from './metrics.ts';

/** `/healthz`, `/livez` and `/readyz`. `count` is told of every answer. */
export function healthPages(
  health: Health,
  count: (probe: Probe, status: number) => void = () => {},
): Pages {
  const page = (probe: Probe, summary: string): [string, Page] => [
    `/${probe}`,
    {
      summary,
      answer() {
        const { status, body } = health.judge(probe);
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
  return new Map<string, Page>([
    [
      '/metrics',
      {
        summary: 'metrics for Prometheus',
        answer: () => ({ status: 200, type: metrics.contentType, body: metrics.render() }),
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
