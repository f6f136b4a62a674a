import t from 'tap';
import { readScalingArgs } from '../../bench/scaling/command.ts';
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
