/**
 * docs/benchmarks.md and docs/reference/robustness.md: their tables are parts of the data files in
 * docs/benchmarks, between `<!-- begin NAME -->` and `<!-- end NAME -->`.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fillPage } from '../../tools/docs/fill.ts';
import { writeJson, type Output, type Print } from '../support/command.ts';
import {
  readResults,
  resultsOf,
  writeResults,
  type Findings,
  type Results,
  type ResultsName,
} from './results.ts';
import { asMarkdown, asText, type Rows } from './table.ts';

const DOCS = join(import.meta.dirname, '../../docs');

type Read = (name: ResultsName) => Results;

/** What is generated of each page, by its path below docs/. */
export const PAGES: Readonly<Record<string, (read: Read) => Record<string, string>>> = {
  'benchmarks.md': benchmarkParts,
  'reference/robustness.md': robustnessParts,
};

/** Writes the data file of a run, and the tables of the pages. */
export function publishResults(name: ResultsName, results: Results): void {
  writeResults(name, results);
  for (const [page, parts] of Object.entries(PAGES)) {
    const path = join(DOCS, page);
    writeFileSync(path, fillPage(readFileSync(path, 'utf8'), parts(readResults)));
  }
}

/** Prints what a run has found, and writes the files. `figures`: all of them, for the file of `--json`. */
export function report(
  name: ResultsName,
  { json, writeDocs }: Output,
  findings: Findings,
  figures: object,
  print: Print,
): void {
  const results = resultsOf(findings);
  const { date, machine, about, tables, notes = [] } = results;
  const facts = Object.entries(about).map(([key, value]) => `${key}: ${value}`);
  print([machine, ...facts].join('\n'));
  for (const [title, rows] of Object.entries(tables)) print(`\n${title}\n\n${asText(rows)}`);
  for (const note of notes) print(note);
  writeJson(json, { date, machine, about, ...figures });
  print(`\nall figures: ${json}`);
  if (writeDocs) publishResults(name, results);
}

const RUNS: readonly (readonly [ResultsName, what: string])[] = [
  ['data', 'traffic, beside other proxies'],
  ['loopback', 'traffic, on loopback'],
  ['portals', 'rules and addresses'],
  ['rest', 'memory and CPU at rest'],
  ['control', 'serving the API'],
  ['soak', 'a million events'],
  ['scaling', 'several workers'],
];

/** The peers that the page shows, in this order, and what it calls them. */
const PEERS: Readonly<Record<string, string>> = {
  direct: 'no proxy',
  'ours, linux': '**linux**',
  'ours, node': 'node',
  'kube-proxy userspace': 'kube-proxy',
  HAProxy: 'HAProxy',
  'nginx stream': 'nginx',
  'kernel DNAT': 'kernel DNAT',
};

function benchmarkParts(read: Read): Record<string, string> {
  const table = (name: ResultsName, title: string): Rows => filled(read(name).tables[title] ?? []);
  const traffic = (title: string, keep?: Keep): string =>
    asMarkdown(pick(table('data', title), ['', 'unit', ...Object.keys(PEERS)], keep), 2);
  return {
    runs: asMarkdown([['figures', 'date', 'machine'], ...runs(read)], 3),
    cpu: traffic('CPU of the proxy'),
    throughput: traffic('Throughput', (cell) => !cell('').includes('8 streams')),
    latency: asMarkdown(
      pick(
        table('data', 'Latency at a fixed rate, µs'),
        ['', 'µs', ...Object.keys(PEERS)],
        (cell) => /^p(50|99)$/.test(cell('µs')),
      ),
      2,
    ),
    memory: asMarkdown(table('data', 'Memory'), 1),
    portals: asMarkdown(portalRows(read('portals')), 2),
    rest: asMarkdown(table('rest', 'At rest'), 2),
    each: asMarkdown(table('rest', 'Memory of each'), 1),
    control: asMarkdown(table('control', 'Watchers'), 1),
    soak: asMarkdown(
      table('soak', 'Memory').filter((_, index, all) => index < 3 || index === all.length - 1),
      0,
    ),
    scaling: asMarkdown(
      pick(
        table('scaling', 'Traffic'),
        ['', 'figure', 'ours, linux × 1', 'ours, linux × 2', 'ours, linux × 4'],
        (cell) => !cell('figure').includes('machine'),
      ),
      2,
    ),
  };
}

/** A row for each portal and size: its start, its memory, and what one change takes. */
function portalRows({ tables }: Results): Rows {
  const [, ...starts] = pick(tables['From the first state to the last rule'] ?? [], [
    'service ports',
    'portal',
    'until the last rule, s',
    'its own MB',
    'resident MB',
    'idle CPU, %',
  ]);
  const changes = tables['One change'] ?? [];
  const change = (columns: readonly string[], kind: string): Rows =>
    pick(changes, columns, (cell) => cell('change') === kind).slice(1);
  const services = change(['seen, ms', 'done, ms'], 'service added');
  const endpoints = change(['done, ms'], 'endpoint added');
  return [
    [
      'service ports',
      'portal',
      'start, s',
      'own MB',
      'resident MB',
      'idle CPU, %',
      'seen, ms',
      'done, ms',
      'endpoint, ms',
    ],
    ...starts.map((row, index) => row.concat(services[index] ?? [], endpoints[index] ?? [])),
  ];
}

/** A row for each machine and day. */
function runs(read: Read): string[][] {
  const groups = Map.groupBy(RUNS, ([name]) => {
    const { date, machine } = read(name);
    return `${date}|${machine}`;
  });
  return [...groups].map(([when, list]) => {
    const links = list.map(([name, what]) => `[${what}](benchmarks/${name}.json)`);
    return [links.join(', ')].concat(when.split('|'));
  });
}

/** How many abuses there were, and a line for each that lost exchanges or was not withstood. */
function robustnessParts(read: Read): Record<string, string> {
  const { date, machine, tables } = read('abuse');
  const [, ...rows] = pick(tables['Abuses'] ?? [], ['abuse', 'engine', 'lost', 'verdict']);
  const abuses = Map.groupBy(rows, ([abuse]) => abuse);
  const lines = [...abuses].flatMap(([abuse, runs]) => {
    const remarks = runs.flatMap(([, engine, lost = '', verdict = '']) => [
      ...(Number(lost) > 0 ? [`${engine}: ${lost} lost`] : []),
      ...(verdict === 'withstood' ? [] : [`${engine} ${verdict}`]),
    ]);
    return remarks.length === 0 ? [] : [`* ${abuse} (${remarks.join('; ')})`];
  });
  const head = `${abuses.size} scenarios; ${date}, ${machine}`;
  return { abuse: [head, lines.join('\n')].join('\n\n') };
}

type Keep = (cell: (column: string) => string) => boolean;

/** Some columns, by their heads, of the rows to keep; medians without their spread, and as the page calls them. */
function pick(rows: Rows, columns: readonly string[], keep: Keep = () => true): Rows {
  const [head = [], ...body] = rows;
  const at = columns.map((column) => head.indexOf(column)).filter((index) => index !== -1);
  const kept = body.filter((row) => keep((column) => row[head.indexOf(column)] ?? ''));
  return [
    at.map((index) => PEERS[head[index] ?? ''] ?? head[index] ?? ''),
    ...kept.map((row) => at.map((index) => (row[index] ?? '').replace(/ \([\d.-]+\)/, ''))),
  ];
}

/** Empty cells in the first two columns repeat the row above. */
function filled(rows: Rows): Rows {
  const above: string[] = [];
  return rows.map((row, index) => {
    const full = row.map((cell, column) =>
      index > 1 && column < 2 && cell === '' && row[0] === '' ? (above[column] ?? '') : cell,
    );
    above.splice(0, above.length, ...full);
    return full;
  });
}
