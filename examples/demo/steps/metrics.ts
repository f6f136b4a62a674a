import { fetchMetrics, sumOf } from '../../support/metrics.ts';
import type { Step } from './step.ts';

/** Clients of the step that asks over UDP. */
const UDP_CLIENTS = 12;

export const metrics: Step = {
  title: 'The proxy has counted all this',
  async run({ proxy }) {
    const samples = await fetchMetrics(proxy.metricsUrl);
    const count = (metric: string, labels?: string): number =>
      sumOf(samples, `kpng_userspace_${metric}`, labels);
    const tcp = count('connections_total', 'protocol="TCP"');
    const udp = count('connections_total', 'protocol="UDP"');
    const retries = count('retries_total');
    const rejected = count('rejected_total');
    const megabytes = Math.round(count('bytes_total') / 1e6);
    return {
      lines: [
        proxy.metricsUrl,
        `TCP connections ${tcp}   UDP clients ${udp}   carried ${megabytes} MB`,
        `attempts retried at another endpoint ${retries}   clients refused ${rejected}`,
      ],
      ok: tcp > 0 && udp === UDP_CLIENTS && retries > 0 && rejected === 0,
      verdict: 'the refusals of birch were met by trying another endpoint; no client was refused',
    };
  },
};
