import t from 'tap';
import { machineRows } from '../../bench/data/report/tables.ts';
import { verdicts } from '../../bench/data/report/targets.ts';
import type { DataReport, DataResult } from '../../bench/data/result.ts';

const one = (median: number) => ({ median, min: median, max: median, samples: 1 });

/** A peer that does so much a second, with CPU of its own and of the machine for each. */
function result(rate: number, own: number | undefined, machine: number, p99?: number): DataResult {
  return {
    rate: one(rate),
    own: own === undefined ? undefined : { median: own, min: own - 1, max: own + 1, samples: 3 },
    user: own === undefined ? undefined : one(own / 4),
    machine: one(machine),
    run: one(machine),
    latency: p99 === undefined ? undefined : { p50: 100, p90: 200, p99, p999: 2 * p99 },
    lost: 0,
  };
}

const report: DataReport = {
  date: '2026-01-02',
  machine: { cpu: 'Some CPU', cores: 2, memoryGiB: 4, system: 'Linux 6', node: 'v26.0.0' },
  congestionControl: 'cubic',
  rounds: 3,
  seconds: 2,
  peers: [
    { word: 'direct', title: 'direct' },
    { word: 'node', title: 'ours, node' },
    { word: 'linux', title: 'ours, linux' },
    { word: 'kube-proxy', title: 'kube-proxy userspace' },
    { word: 'haproxy', title: 'HAProxy' },
  ],
  loads: [
    {
      word: 'requests-64',
      title: 'small requests',
      rateUnit: 'k/s',
      cpuUnit: 'µs/request',
      results: {
        direct: result(60, undefined, 30, 900),
        node: result(20, 18, 70, 1500),
        linux: result(30, 10, 55, 1000),
        'kube-proxy': result(25, 20, 65, 1200),
        haproxy: result(40, 8, 45, 950),
      },
    },
    {
      word: 'udp-64',
      title: 'UDP <round trips>',
      rateUnit: 'k/s',
      cpuUnit: 'µs/round trip',
      results: {
        direct: result(100, undefined, 10),
        node: result(30, 21, 33),
        linux: { ...result(50, 9, 20), lost: 0.125 },
        'kube-proxy': result(40, 20, 30),
      },
    },
  ],
  fixedRate: [
    {
      word: 'requests-paced',
      title: 'small requests, 10,000 a second',
      rateUnit: 'k/s',
      cpuUnit: 'µs/request',
      results: {
        direct: result(10, undefined, 1, 500),
        linux: result(10, 10, 1, 700),
        'kube-proxy': result(10, 20, 1, 800),
      },
    },
  ],
  idleConnection: {},
  idleConnections: 0,
  profiles: [],
  missing: [],
  notes: [],
  busyBefore: 0.034,
  took: 601,
};

t.test('what the machine did more than without a proxy is what a proxy costs', (t) => {
  t.same(machineRows(report)[1], [
    'small requests',
    'µs/request',
    '(30.0)',
    '40.0',
    '25.0',
    '35.0',
    '15.0',
  ]);
  const alone = { ...report, peers: report.peers.slice(1, 2), loads: report.loads.slice(0, 1) };
  const [load] = alone.loads;
  const { direct: _, ...results } = load?.results ?? {};
  t.same(
    machineRows({ ...alone, loads: load === undefined ? [] : [{ ...load, results }] }).length,
    1,
    'nothing is said of it where direct was not measured',
  );
  t.end();
});

t.test('targets are judged by ratios inside of the run', (t) => {
  const found = verdicts(report).map(
    ({ load, engine, against, what, ratio, met }) =>
      `${load} ${engine}/${against} ${what} ${ratio.toFixed(2)} ${met ? 'met' : 'missed'}`,
  );
  t.same(found, [
    'requests-64 node/kube-proxy CPU 0.90 met',
    'udp-64 node/kube-proxy CPU 1.05 met',
    'requests-64 linux/kube-proxy CPU 0.50 met',
    'udp-64 linux/kube-proxy CPU 0.45 met',
    'requests-64 linux/haproxy CPU 1.25 missed',
    'requests-64 linux/kube-proxy throughput 1.20 met',
    'udp-64 linux/kube-proxy throughput 1.25 met',
    'requests-paced linux/kube-proxy p99 0.88 met',
  ]);
  t.same(verdicts({ ...report, loads: [], fixedRate: [] }), []);
  t.end();
});
