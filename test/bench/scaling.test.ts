import t from 'tap';
import { readScalingArgs } from '../../bench/scaling/command.ts';
import type { Cost } from '../../bench/scaling/cost.ts';
import { drawnOut, inProportion, reasonedRows } from '../../bench/scaling/reason.ts';
import { costRows, scalingResults, type ScalingReport } from '../../bench/scaling/report.ts';
import { skewOf } from '../../bench/scaling/skew.ts';

t.test('flags choose workers and engines, and are refused when they cannot be meant', (t) => {
  t.match(readScalingArgs([]), { workers: [1, 2, 4], engines: ['node', 'linux'], rounds: 3 });
  t.match(readScalingArgs(['--workers', '1,8', '--engines', 'linux', '--service-ports', '0']), {
    workers: [1, 8],
    engines: ['linux'],
    servicePorts: 0,
  });
  for (const args of [
    ['--workers', '0'],
    ['--workers', '65'],
    ['--workers', 'auto'],
    ['--engines', 'haproxy'],
    ['--seconds', '0'],
  ]) {
    t.throws(() => readScalingArgs(args), TypeError, args.join(' '));
  }
  t.end();
});

t.test('the fullest worker has all of one client, and its even share of very many', (t) => {
  t.same(skewOf(1, 8, Math.random, 10), { mean: 8, p95: 8 });
  t.same(skewOf(7, 1, Math.random, 10), { mean: 1, p95: 1 });
  // Two clients on two workers meet in half of all cases.
  const { mean, p95 } = skewOf(2, 2, Math.random, 10_000);
  t.ok(mean > 1.45 && mean < 1.55, String(mean));
  t.equal(p95, 2);
  t.ok(skewOf(20_000, 4, Math.random, 20).p95 < 1.05);
  t.end();
});

const cost: Cost = {
  engine: 'node',
  workers: 2,
  servicePorts: 1001,
  emptyBytes: 64 * 1024 ** 2,
  fullBytes: 80 * 1024 ** 2,
  descriptors: 4000,
  applyCpu: 0.5005,
  applyMainCpu: 0.1001,
  endpointsMainCpu: 0.01001,
  scrapeMainCpu: 0.002002,
};

t.test('costs are for each service port', (t) => {
  t.same(costRows([cost])[1], ['node', '2', '64', '4', '500', '100', '10.0', '2.00']);
  t.end();
});

t.test('what follows for many workers lies on the line through what was measured', (t) => {
  const costs = [
    { ...cost, workers: 1, emptyBytes: 1 },
    cost,
    { ...cost, workers: 4, emptyBytes: 2 * cost.emptyBytes, descriptors: 8000 },
  ];
  t.equal(
    drawnOut(costs, 64, ({ emptyBytes }) => emptyBytes),
    32 * cost.emptyBytes,
  );
  const rows = reasonedRows(costs);
  t.same(rows[1], ['memory without service ports', '2.00 GiB']);
  t.same(rows[2], ['descriptors of the listeners', '1,280,000']);
  t.same(reasonedRows([cost])[1]?.[1], '-', 'one number of several workers makes no line');
  t.equal(
    inProportion([cost, { ...cost, workers: 4, applyCpu: 1 }], 60, ({ applyCpu }) => applyCpu),
    15.005,
  );
  t.same(rows[3], ['CPU of opening all of them, all threads', '107 s']);
  t.end();
});

t.test('the section names what could not be measured, and has a column for each', (t) => {
  const figure = { median: 12.3, min: 12, max: 13, samples: 3 };
  const result = { rate: figure, own: figure, user: figure, machine: figure, run: figure };
  const report: ScalingReport = {
    date: '2026-01-01',
    machine: { cpu: 'a CPU', cores: 2, memoryGiB: 1, system: 'Linux', node: 'v26.0.0' },
    rounds: 3,
    seconds: 2,
    peers: [{ word: 'node:2', title: 'ours, node × 2' }],
    loads: [
      {
        word: 'requests',
        title: 'small requests',
        rateUnit: 'k/s',
        cpuUnit: 'µs/request',
        results: { 'node:2': { ...result, latency: undefined, lost: 0 } },
      },
    ],
    costs: [cost],
    missing: [{ peer: 'linux:2', why: 'no luck' }],
    busyBefore: 0.01,
  };
  const { about, tables, notes } = scalingResults(report);
  t.same(tables['Traffic']?.[1], ['small requests', 'k/s', '12.3 (12.0-13.0)']);
  t.same(notes, ['missing: linux:2: no luck']);
  t.match(about, { 'service ports': 1001 });
  t.end();
});
