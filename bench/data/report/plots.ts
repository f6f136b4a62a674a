/** The plots of the page. */
import { barChart, lineChart } from '../../report/svg.ts';
import type { DataLoadResult, DataReport } from '../result.ts';

interface Plot {
  /** Below docs/. */
  readonly file: string;
  readonly svg: string;
}

/** Bars are cut off at so many times what they are compared with. */
const LONGEST = 2.5;

/** Those that the run has figures for. */
export function renderPlots(report: DataReport): Plot[] {
  return [...cpuPlot(report), ...report.fixedRate.flatMap((load) => latencyPlot(report, load))];
}

function cpuPlot({ peers, loads }: DataReport): Plot[] {
  const series = peers.filter(({ word }) =>
    loads.some(({ results }) => results[word]?.own !== undefined),
  );
  // What CPU is compared with: kube-proxy where it was measured, else the first proxy.
  const base = series.find(({ word }) => word === 'kube-proxy') ?? series[0];
  if (base === undefined) return [];
  const groups = loads.flatMap(({ title, results }) => {
    const one = results[base.word]?.own?.median;
    if (one === undefined || one === 0) return [];
    const values = series.map(({ word }) => ratio(results[word]?.own?.median, one));
    return [{ label: title, values }];
  });
  if (groups.length === 0) return [];
  const svg = barChart({
    title: `CPU of the proxy for the same work, ${base.title} = 1 (less is better)`,
    series: series.map((peer) => ({ name: peer.title, colour: peers.indexOf(peer) })),
    groups,
    max: LONGEST,
    mark: 1,
  });
  return [{ file: 'img/data-cpu.svg', svg }];
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
  return [{ file: `img/data-${load.word}.svg`, svg }];
}
