import t from 'tap';
import { dataResults } from '../../bench/data/report/docs.ts';
import { baseline, renderPlots } from '../../bench/data/report/plots.ts';
import {
  allTables,
  machineRows,
  missingLines,
  rateRows,
  targetRows,
} from '../../bench/data/report/tables.ts';
import { reasonLines } from '../../bench/data/report/reasons.ts';
import { verdicts } from '../../bench/data/report/targets.ts';
import type { DataReport, DataResult } from '../../bench/data/result.ts';
import { barChart, lineChart } from '../../bench/report/svg.ts';

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
  idleConnection: { node: 6144, linux: 2048 },
  idleConnections: 1000,
  profiles: [
    {
      load: 'requests-64',
      peer: 'node',
      shares: { 'TCP, UDP and IP': 0.5, JavaScript: 0.304, libuv: 0.01 },
    },
  ],
  missing: [
    { peer: 'haproxy', load: 'requests-64', why: 'it fell over' },
    { peer: 'nginx', why: 'not installed: nginx (package nginx)' },
    { load: 'bulk-up-1', why: 'not installed: iperf3 (package iperf3)' },
  ],
  notes: ['nginx is not installed'],
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

t.test('a peer without a figure has an empty cell, and loss is reported', (t) => {
  const row = rateRows(report)[2];
  t.equal(row?.[6], '');
  t.equal(row?.[4], '50.0, 12.5 % lost');
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
  t.same(
    targetRows(report)[1]?.slice(-2),
    ['4.50 + 13.5', '5.00 + 15.0'],
    'and where the CPU goes',
  );
  t.same(verdicts({ ...report, loads: [], fixedRate: [] }), []);
  t.end();
});

t.test('what is missing is reported with its cause', (t) => {
  t.same(missingLines(report), [
    'missing: HAProxy, small requests: it fell over',
    'missing: nginx: not installed: nginx (package nginx)',
    'missing: bulk-up-1: not installed: iperf3 (package iperf3)',
    'nginx is not installed',
  ]);
  t.end();
});

t.test('the data file has every table, the machine and what is missing', (t) => {
  const results = dataResults(report);
  t.equal(results.machine, 'Some CPU, 2 cores, 4 GiB, Linux 6, Node v26.0.0');
  t.match(results.about, { 'congestion control': 'cubic', 'busy before': '3 %' });
  t.same(
    Object.keys(results.tables),
    allTables(report).map(({ title }) => title),
  );
  t.equal(Object.keys(results.tables).length, 9);
  t.match(results.notes, ['missing: HAProxy, small requests: it fell over']);
  const empty = dataResults({ ...report, idleConnection: {}, loads: [], fixedRate: [] });
  t.notOk('Memory' in empty.tables, 'no table without figures');
  const twice = dataResults({ ...report, otherwise: { ...report, congestionControl: 'bbr' } });
  t.ok('CPU of the proxy, bbr' in twice.tables);
  t.end();
});

t.test('plots compare with kube-proxy, or with the first proxy where it was not measured', (t) => {
  t.equal(baseline(report), 'kube-proxy');
  t.equal(baseline({ ...report, peers: report.peers.slice(0, 3) }), 'node');
  t.equal(baseline({ ...report, peers: report.peers.slice(0, 1) }), undefined);
  const [cpu, latency] = renderPlots(report);
  t.match(cpu?.svg, 'kube-proxy userspace = 1');
  t.match(cpu?.svg, '>0.45</text>');
  t.match(cpu?.svg, 'UDP &lt;round trips&gt;', 'text cannot break the picture');
  t.match(latency?.file, 'img/data-requests-paced.svg');
  t.equal(latency?.svg.match(/<circle/g)?.length, 12, 'four percentiles of three peers');
  t.same(renderPlots({ ...report, loads: [], fixedRate: [] }), []);
  t.end();
});

t.test('charts are pictures of their own that follow the theme of the reader', (t) => {
  const bars = barChart({
    title: 'T',
    series: [
      { name: 'a', colour: 0 },
      { name: 'b', colour: 1 },
    ],
    groups: [
      { label: 'g', values: [1, undefined] },
      { label: 'empty', values: [undefined] },
    ],
    max: 2,
    mark: 1,
  });
  t.match(bars, /^<svg xmlns="http:\/\/www\.w3\.org\/2000\/svg" viewBox="0 0 760 [\d.]+"/);
  t.match(bars, 'prefers-color-scheme: dark');
  t.equal(bars.match(/<rect/g)?.length, 3, 'two of the legend and one bar');
  const long = barChart({
    title: '',
    series: [{ name: 'a', colour: 3 }],
    groups: [{ label: '', values: [9] }],
    max: 2,
  });
  t.match(long, '>9.00</text>', 'a bar that is cut off says how long it is');
  t.match(long, 'width="420"');
  const lines = lineChart({
    title: '',
    points: ['p', 'q'],
    lines: [{ name: 'a', colour: 8, values: [15, 1500] }],
    unit: 'µs',
  });
  t.match(lines, /10 µs<[^]*100 µs<[^]*1,000 µs<[^]*10,000 µs</);
  t.notMatch(bars + long + lines, /NaN|undefined|Infinity/);
  t.end();
});

t.test('for each missed target, the page explains what uses the CPU', async (t) => {
  const load = report.loads.find(({ word }) => word === 'requests-64');
  if (load === undefined) throw new Error('no such load');
  // Ours: 2.5 in the program and 7.5 in the kernel; HAProxy: 2 and 6.
  const profiles = [
    { load: 'requests-64', peer: 'linux', shares: { 'Node and V8': 0.2, copying: 0.5, other: 0 } },
  ];
  const lines = reasonLines({ ...report, loads: [load], profiles });
  const line = lines.find((each) => each.includes('ours, linux') && each.includes('HAProxy'));
  t.match(line, 'small requests, *ours, linux*, 1.25 of HAProxy instead of 1.05:');
  t.match(
    line,
    'the program itself takes 0.500 more than the other one, and the kernel for it 1.50 more.',
  );
  t.match(line, "The kernel's part alone is 0.94; what is above the target is the program's own.");
  t.match(line, 'Node and V8 (20 %) in the program, and copying (50 %)');
  t.ok(dataResults({ ...report, loads: [load], profiles }).notes?.includes(line ?? ''));
  const met = {
    ...load,
    results: { ...load.results, linux: result(30, 1, 55), node: result(20, 1, 55) },
  };
  t.same(reasonLines({ ...report, loads: [met], profiles: [] }), []);
});
