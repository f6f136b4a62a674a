import t from 'tap';
import { join } from 'node:path';
import { LOADS, type LoadResult, type LoadSettings } from '../../bench/loads/load.ts';
import { direct, pipe } from '../../bench/peers/peer.ts';
import { runRounds } from '../../bench/rounds.ts';
import { run } from '../../bench/support/worker.ts';

const SCRIPTS = join(import.meta.dirname, '../../bench/loads');

/** Measures for a moment. On a machine that has no time for it in that moment, for a longer one. */
async function runLoad(script: string, target: LoadSettings['target']): Promise<LoadResult> {
  for (const seconds of [0.3, 2]) {
    const result = await run<LoadResult>(join(SCRIPTS, `${script}.ts`), { target, seconds });
    if (result.rate > 0) return result;
  }
  return run<LoadResult>(join(SCRIPTS, `${script}.ts`), { target, seconds: 8 });
}

t.test('every load runs against the backend and counts work', async (t) => {
  const backend = await direct();
  t.teardown(() => backend.close());
  for (const load of LOADS) {
    const result = await runLoad(load.script, backend.targets[load.target]);
    t.ok(result.total > 0, `${load.script}: total ${result.total}`);
    t.ok(result.rate > 0, `${load.script}: rate ${result.rate}`);
    if (result.latency !== undefined) {
      t.ok(result.latency.p50 > 0 && result.latency.p50 <= result.latency.p99, load.script);
    }
  }
});

t.test('rounds measure each load with each peer and sum it up', async (t) => {
  const backend = await direct();
  t.teardown(() => backend.close());
  const naive = await pipe(backend.targets);
  t.teardown(() => naive.close());
  const told: string[] = [];
  const loads = LOADS.filter((load) => load.script === 'requests' || load.script === 'udp');
  const reports = await runRounds({
    loads,
    peers: [backend, naive],
    rounds: 2,
    seconds: 0.2,
    onProgress: (text) => told.push(text),
  });
  t.same(
    reports.map((report) => report.title),
    loads.map((load) => load.title),
  );
  t.equal(told.length, 8);
  for (const report of reports) {
    t.match(report.results['direct'], { rate: { samples: 2 }, cpu: undefined });
    t.match(report.results['pipe()'], { rate: { samples: 2 }, p50: { samples: 2 } });
    if (process.platform === 'linux') t.match(report.results['pipe()']?.cpu, { samples: 2 });
  }
});
