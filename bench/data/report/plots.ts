/** The plots of the page. */
import { barChart, lineChart } from '../../report/svg.ts';
import type { DataLoadResult, DataReport } from '../result.ts';

export interface Plot {
  /** Below docs/. */
  readonly file: string;
  /** What it shows, for those who do not see it. */
  readonly alt: string;
  readonly svg: string;
}

/** Bars are cut off at so many times what they are compared with. */
const LONGEST = 2.5;

/** Those that the run has figures for. */
export function renderPlots(report: DataReport): Plot[] {
  return [cpuPlot(report), ...report.fixedRate.flatMap((load) => latencyPlot(report, load))].filter(
    (plot) => plot !== undefined,
  );
}

/** What CPU is compared with: kube-proxy where it was measured, else the first proxy. */
export function baseline({ peers, loads }: DataReport): string | undefined {
  const proxies = peers.filter(({ word }) =>
    loads.some(({ results }) => results[word]?.own !== undefined),
  );
  return (proxies.find(({ word }) => word === 'kube-proxy') ?? proxies[0])?.word;
}

function cpuPlot(report: DataReport): Plot | undefined {
  const word = baseline(report);
  const base = report.peers.find((peer) => peer.word === word);
  if (base === undefined) return undefined;
  const series = report.peers.filter((peer) =>
    report.loads.some(({ results }) => results[peer.word]?.own !== undefined),
  );
  const groups = report.loads.flatMap(({ title, results }) => {
    const one = results[base.word]?.own?.median;
    if (one === undefined || one === 0) return [];
    const values = series.map((peer) => ratio(results[peer.word]?.own?.median, one));
    return [{ label: title, values }];
  });
  if (groups.length === 0) return undefined;
  const title = `CPU of the proxy for the same work, ${base.title} = 1 (less is better)`;
  const svg = barChart({
    title,
    series: series.map((peer) => ({ name: peer.title, colour: report.peers.indexOf(peer) })),
    groups,
    max: LONGEST,
    mark: 1,
  });
  return { file: 'img/data-cpu.svg', alt: title, svg };
}

function ratio(value: number | undefined, one: number): number | undefined {
  return value === undefined ? undefined : value / one;
}

function latencyPlot({ peers }: DataReport, load: DataLoadResult): Plot[] {
  const lines = peers.flatMap(({ word, title }, colour) => {
    const latency = load.results[word]?.latency;
    if (latency === undefined) return [];
    const { p50, p90, p99, p999 } = latency;
    return [{ name: title, colour, values: [p50, p90, p99, p999] }];
  });
  if (lines.length === 0) return [];
  const title = `Latency: ${load.title}`;
  const svg = lineChart({ title, points: ['p50', 'p90', 'p99', 'p99.9'], lines, unit: 'µs' });
  return [{ file: `img/data-${load.word}.svg`, alt: title, svg }];
}
