import t from 'tap';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { loopbackResults } from '../../bench/report/docs.ts';
import { PAGES } from '../../bench/report/page.ts';
import { asJson, readResults } from '../../bench/report/results.ts';
import { fillPage } from '../../tools/docs/fill.ts';
import { describeMachine, machine } from '../../bench/report/machine.ts';
import type { Report } from '../../bench/report/report.ts';
import { summarize, threeDigits, type Summary } from '../../bench/report/stats.ts';
import { asMarkdown, asText, loadRows, memoryRows } from '../../bench/report/table.ts';

const one = (median: number): Summary => ({ median, min: median, max: median, samples: 1 });

const report: Report = {
  date: '2026-01-02',
  machine: { cpu: 'Some CPU', cores: 2, memoryGiB: 4, system: 'Linux 6', node: 'v26.0.0' },
  rounds: 3,
  seconds: 0.8,
  peers: ['direct', 'kpng-userspace'],
  loads: [
    {
      title: 'bulk',
      rateUnit: 'GB/s',
      cpuUnit: 's/GB',
      results: {
        direct: { rate: one(5), cpu: undefined, p50: undefined, p99: undefined, lost: 0 },
        'kpng-userspace': {
          rate: summarize([1.5, 1, 2]),
          cpu: one(0.4),
          p50: undefined,
          p99: undefined,
          lost: 0,
        },
      },
    },
    {
      title: 'requests',
      rateUnit: 'k/s',
      cpuUnit: 's/100k',
      results: {
        direct: { rate: one(100), cpu: undefined, p50: one(200), p99: one(900), lost: 0 },
        'kpng-userspace': { rate: one(50), cpu: one(2), p50: one(400), p99: one(1800), lost: 0 },
      },
    },
  ],
  idle: [{ servicePorts: 2, resident: 80e6, anonymous: 30e6, readyMs: 250 }],
};

t.test('the median is the middle, or between the two in the middle', (t) => {
  t.same(summarize([3, 1, 2]), { median: 2, min: 1, max: 3, samples: 3 });
  t.same(summarize([4, 1, 2, 3]), { median: 2.5, min: 1, max: 4, samples: 4 });
  t.equal(summarize([]), undefined);
  t.end();
});

t.test('figures have three digits that count', (t) => {
  t.same([0, 0.3594, 3.594, 35.94, 359.4, 3594].map(threeDigits), [
    '0',
    '0.359',
    '3.59',
    '35.9',
    '359',
    '3594',
  ]);
  t.end();
});

t.test(
  'a load has a row for speed, one for CPU, and one for latency if it waits for answers',
  (t) => {
    t.same(loadRows(report), [
      ['load', 'figure', 'direct', 'kpng-userspace'],
      ['bulk', 'GB/s', '5.00', '1.50 (1.00-2.00)'],
      ['', 'CPU s/GB', '-', '0.400'],
      ['requests', 'k/s', '100', '50.0'],
      ['', 'CPU s/100k', '-', '2.00'],
      ['', 'p50 / p99 µs', '200 / 900', '400 / 1800'],
    ]);
    t.same(memoryRows(report)[1], ['2 service ports', '80', '30', '250']);
    t.end();
  },
);

t.test('columns are aligned, figures to the right', (t) => {
  const rows = [
    ['a', 'b', 'c'],
    ['long', 'x', '12.5'],
  ];
  t.equal(asText(rows), 'a      b      c\nlong   x   12.5');
  t.equal(asMarkdown(rows), '| a | b | c |\n| --- | --- | ---: |\n| long | x | 12.5 |');
  t.end();
});

t.test('the data file has the machine, the method and every figure', (t) => {
  const results = loopbackResults(report);
  t.equal(results.machine, 'Some CPU, 2 cores, 4 GiB, Linux 6, Node v26.0.0');
  t.same(results.about, { rounds: 3, seconds: 0.8 });
  t.same(Object.values(results.tables), [loadRows(report), memoryRows(report)]);
  t.match(describeMachine(machine()), process.version);
  t.end();
});

t.test('a data file has a line for each row', (t) => {
  const results = loopbackResults(report);
  const json = asJson(results);
  t.same(JSON.parse(json), results);
  t.match(json, '[ "2 service ports", "80", "30", "250" ]');
  t.end();
});

t.test('the tables of the pages are those of the data files', (t) => {
  for (const [name, parts] of Object.entries(PAGES)) {
    const path = join(import.meta.dirname, '../../docs', name);
    const made = fillPage(readFileSync(path, 'utf8'), parts(readResults));
    if (process.env['UPDATE_DOCS'] === '1') writeFileSync(path, made);
    t.equal(readFileSync(path, 'utf8'), made, 'UPDATE_DOCS=1 npx tap test/bench/report.test.ts');
  }
  t.end();
});
