/** What this project wants to reach, as ratios of CPU inside of one run. */
import type { DataReport, DataResult } from '../result.ts';

type Engine = 'node' | 'linux';

interface Target {
  readonly engine: Engine;
  readonly against: 'kube-proxy' | 'haproxy';
  readonly loads: readonly string[];
  /** CPU of the proxy for one unit of work, as a multiple of the other one's. */
  readonly atMost: number;
}

const BULK = ['bulk-down-1', 'bulk-up-1'];
const BULK_8 = ['bulk-down-8', 'bulk-up-8'];
const REQUESTS = ['requests-1', 'requests-64', 'requests-512'];
const UDP_BUSY = ['udp-64', 'udp-1000'];

const TARGETS: readonly Target[] = [
  { engine: 'node', against: 'kube-proxy', loads: BULK, atMost: 0.95 },
  { engine: 'node', against: 'kube-proxy', loads: BULK_8, atMost: 1 },
  { engine: 'node', against: 'kube-proxy', loads: REQUESTS, atMost: 1 },
  { engine: 'node', against: 'kube-proxy', loads: ['connections'], atMost: 1.7 },
  {
    engine: 'node',
    against: 'kube-proxy',
    loads: ['udp-1', ...UDP_BUSY, 'udp-one-way'],
    atMost: 1.25,
  },
  { engine: 'linux', against: 'kube-proxy', loads: BULK, atMost: 0.6 },
  { engine: 'linux', against: 'kube-proxy', loads: BULK_8, atMost: 0.75 },
  { engine: 'linux', against: 'kube-proxy', loads: REQUESTS, atMost: 0.7 },
  { engine: 'linux', against: 'kube-proxy', loads: ['connections'], atMost: 0.7 },
  { engine: 'linux', against: 'kube-proxy', loads: UDP_BUSY, atMost: 0.5 },
  { engine: 'linux', against: 'kube-proxy', loads: ['udp-one-way'], atMost: 0.4 },
  { engine: 'linux', against: 'haproxy', loads: BULK, atMost: 0.5 },
  { engine: 'linux', against: 'haproxy', loads: [...REQUESTS, 'connections'], atMost: 1.05 },
];

export interface Verdict {
  readonly load: string;
  readonly engine: Engine;
  readonly against: string;
  /** What is compared: CPU of the proxy, throughput, or the 99th percentile at a fixed rate. */
  readonly what: 'CPU' | 'throughput' | 'p99';
  readonly ratio: number;
  readonly limit: number;
  readonly met: boolean;
  /** Of CPU: ours and the other one's, in the program itself and in the kernel for it. */
  readonly parts?: Readonly<Record<'mine' | 'other', Parts>>;
}

export interface Parts {
  readonly user: number;
  readonly kernel: number;
}

/** Every target that the run has both figures for. */
export function verdicts(report: Pick<DataReport, 'loads' | 'fixedRate'>): Verdict[] {
  return [
    ...TARGETS.flatMap(({ engine, against, loads, atMost }) =>
      loads.flatMap((load) => {
        const [mine, other] = pair(report.loads, load, engine, against);
        if (mine?.own === undefined || other?.own === undefined) return [];
        const ratio = mine.own.median / other.own.median;
        const met = ratio <= atMost;
        const parts = { mine: partsOf(mine), other: partsOf(other) };
        return [{ load, engine, against, what: 'CPU' as const, ratio, limit: atMost, met, parts }];
      }),
    ),
    ...report.loads.flatMap(({ word }) => {
      // What arrives of a fixed offer is a matter of loss, which has a table of its own.
      if (word === 'udp-one-way') return [];
      const [mine, other] = pair(report.loads, word, 'linux', 'kube-proxy');
      if (mine === undefined || other === undefined) return [];
      const ratio = mine.rate.median / other.rate.median;
      return [ratioVerdict(word, 'throughput', ratio, ratio >= 1)];
    }),
    ...report.fixedRate.flatMap(({ word }) => {
      const [mine, other] = pair(report.fixedRate, word, 'linux', 'kube-proxy');
      if (mine?.latency === undefined || other?.latency === undefined) return [];
      const ratio = mine.latency.p99 / other.latency.p99;
      return [ratioVerdict(word, 'p99', ratio, ratio <= 1)];
    }),
  ];
}

function partsOf({ own, user }: DataResult): Parts {
  const inProgram = user?.median ?? 0;
  return { user: inProgram, kernel: (own?.median ?? 0) - inProgram };
}

function ratioVerdict(load: string, what: Verdict['what'], ratio: number, met: boolean): Verdict {
  return { load, engine: 'linux', against: 'kube-proxy', what, ratio, limit: 1, met };
}

function pair(
  loads: DataReport['loads'],
  word: string,
  engine: Engine,
  against: string,
): [DataResult | undefined, DataResult | undefined] {
  const results = loads.find((load) => load.word === word)?.results;
  return [results?.[engine], results?.[against]];
}
