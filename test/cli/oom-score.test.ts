import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { setOomScore } from '../../src/cli/lifecycle.ts';
import { parse } from '../../src/cli/parse.ts';
import { captureLog } from '../support/captured-log.ts';
import { shortDir } from '../support/short-dir.ts';

t.test('the kernel is told what is asked for, and nothing without being asked', async (t) => {
  const { log, lines } = await captureLog();
  const path = join(shortDir(t), 'oom_score_adj');
  writeFileSync(path, '');
  await setOomScore(undefined, log, path);
  t.equal(readFileSync(path, 'utf8'), '');
  await setOomScore(-999, log, path);
  t.equal(readFileSync(path, 'utf8'), '-999');
  t.same(lines(), []);
});

t.test('a kernel that does not take it is a warning', async (t) => {
  const { log, lines } = await captureLog();
  await setOomScore(5, log, join(shortDir(t), 'no', 'such'));
  t.match(lines(), [{ level: 'warn', oomScoreAdj: 5, code: 'ENOENT' }]);
});

t.test(
  'the kernel of this machine',
  { skip: process.platform !== 'linux' && 'only on linux' },
  async (t) => {
    const { log, lines } = await captureLog();
    const path = '/proc/self/oom_score_adj';
    const before = Number(readFileSync(path, 'utf8'));
    // Raising it needs no privilege; it stays so for this test's process only.
    await setOomScore(Math.min(before + 1, 1000), log);
    t.equal(Number(readFileSync(path, 'utf8')), Math.min(before + 1, 1000));
    t.same(lines(), []);
  },
);

t.test('the flag takes what the kernel takes', async (t) => {
  for (const [score, kind] of [
    ['-1000', 'run'],
    ['1000', 'run'],
    ['', 'run'],
    ['-1001', 'usage-error'],
    ['high', 'usage-error'],
  ] as const) {
    t.equal(parse(['local', 'to-json', `--oom-score-adj=${score}`]).kind, kind, score);
  }
  t.match(parse(['local', 'to-json', '--oom-score-adj', '-5']), {
    kind: 'run',
    globals: { 'oom-score-adj': -5 },
  });
});
