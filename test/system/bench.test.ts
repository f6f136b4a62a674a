/** The benchmarks that need namespaces, as far as they can be wrong: that they measure, and leave nothing. */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t, { type Test } from 'tap';
import type { DataReport } from '../../bench/data/result.ts';
import type { PortalReport } from '../../bench/portals/result.ts';
import { systemExec } from '../../src/portal/exec.ts';

const MAIN = join(import.meta.dirname, '../../bench/main.ts');

/** Runs a benchmark and returns its report. */
async function measure<Report>(t: Test, line: string): Promise<Report> {
  const json = join(t.testdir(), 'result.json');
  const bench = promisify(execFile)(process.execPath, [MAIN, ...line.split(' '), '--json', json]);
  await bench;
  const { stdout } = await systemExec({ file: 'ip', args: ['netns', 'list'] });
  t.notMatch(stdout, `kpngbench-${bench.child.pid}-`, 'its namespaces are gone');
  return JSON.parse(readFileSync(json, 'utf8')) as Report;
}

t.test('data measures both engines and the kernel, and names missing tools', async (t) => {
  const report = await measure<DataReport>(
    t,
    'data --only udp-64 --rounds 1 --seconds 1 --idle 100 --peers direct,node,linux,kube-proxy,dnat --peer kube-proxy=/bin/false',
  );
  t.same(
    report.peers.map(({ word }) => word),
    ['direct', 'node', 'linux', 'dnat'],
  );
  t.match(report.missing, [{ peer: 'kube-proxy', why: 'false has ended with code 1' }]);
  for (const [word, { rate, machine, own }] of Object.entries(report.loads[0]?.results ?? {})) {
    t.ok(rate.median > 0 && machine.median > 0, word);
    t.equal(own === undefined, word === 'direct' || word === 'dnat', word);
  }
  t.ok(Number.isFinite(report.idleConnection['linux']));
});

t.test('portals measures each portal', async (t) => {
  const { results } = await measure<PortalReport>(
    t,
    'portals --sizes 30 --rounds 1 --changes 2 --idle 1',
  );
  const of = (name: string) => results.find(({ subject }) => subject === name);
  t.match(of('nftables'), { servicePorts: 30, served: 30, cold: { samples: 1 } });
  t.ok((of('nftables')?.coldProcesses ?? Infinity) < 30, 'no process for each service port');
  t.match(of('nftables')?.changes.added, { seen: { samples: 2 }, done: { samples: 2 } });
  // Nothing looks at addresses with a program, so no other one is counted.
  t.match(of('address'), { served: 30, coldProcesses: 0, changes: { added: { processes: 0 } } });
  t.match(of('address, own interface'), { served: 30 });
});
