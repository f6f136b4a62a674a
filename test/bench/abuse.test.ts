import { join } from 'node:path';
import t from 'tap';
import { readAbuseArgs, runAbuse } from '../../bench/abuse/command.ts';
import { evaluate, type Abuse, type Result, type Traffic } from '../../bench/abuse/scenario.ts';

const MIB = 1024 ** 2;
const quiet: Traffic = {
  exchanged: 100,
  lost: 0,
  refused: 0,
  datagrams: 100,
  datagramsLost: 0,
  probes: 5,
  probesFailed: 0,
  p99: 3,
  mistakes: [],
};
const abuse: Abuse = { name: 'a', title: 'An abuse', run: async () => ({ did: 'it' }) };
const good: Result = {
  name: 'a',
  title: 'An abuse',
  engine: 'node',
  did: 'it',
  ended: undefined,
  memory: { rest: 100 * MIB, peak: 250 * MIB },
  control: { rest: quiet, during: quiet },
  seconds: 1,
};
const during = (more: Partial<Traffic>): Result => ({
  ...good,
  control: { rest: quiet, during: { ...quiet, ...more } },
});

t.test('the verdict follows from what was measured', (t) => {
  t.same(evaluate(abuse, good, true), []);
  const bad: [Partial<Abuse>, Result, RegExp][] = [
    [{}, { ...good, ended: 'was ended by SIGABRT' }, /^the process was ended by SIGABRT$/],
    [{ memoryMiB: 100 }, good, /^150 MiB more, bound 100$/],
    [{}, { ...good, mistakes: ['a foreign byte'] }, /^1 mistakes: a foreign byte$/],
    [{}, during({ lost: 1, mistakes: ['cut'] }), /^control: 1 lost \(cut\)$/],
    [{}, during({ refused: 2 }), /^control: 2 refused/],
    [{}, during({ exchanged: 0 }), /^control: nothing exchanged$/],
    [{}, during({ probesFailed: 1 }), /^1 health probes failed$/],
    [{}, during({ datagramsLost: 3 }), /^control: 3 datagrams lost$/],
    [{}, during({ p99: 151 }), /^control: p99 151 ms, bound 150 ms$/],
  ];
  for (const [rules, result, reason] of bad) {
    const [found, ...others] = evaluate({ ...abuse, ...rules }, result, true);
    t.match(found, reason);
    t.same(others, []);
  }
  t.same(evaluate(abuse, during({ p99: 500 }), false), [], 'a short run does not evaluate times');
  t.same(evaluate({ ...abuse, allows: 'refusals' }, during({ refused: 2 }), true), []);
  t.same(evaluate({ ...abuse, allows: 'cuts' }, during({ lost: 2, exchanged: 0 }), true), []);
  t.end();
});

const options = { skip: process.platform !== 'linux' && 'only on linux' };

t.test('a scenario, from outside', options, async (t) => {
  const lines: string[] = [];
  const json = join(t.testdir(), 'abuse.json');
  const command = readAbuseArgs(['--short', '--only=slow-http', `--json=${json}`]);
  await runAbuse(
    command,
    (line) => lines.push(line),
    () => undefined,
  );
  t.match(lines, [/^ok .*slow-http/, /1 withstood, 0 failed/]);
});
