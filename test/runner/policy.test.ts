import t from 'tap';
import { describe, weigh } from './code-budget.ts';
import { checkLine, fileLine, indent, problemLines, tallyLine } from './print.ts';
import { judgeSkips, mayBeSkipped } from './skip-policy.ts';
import type { FileReport } from './tap-report.ts';

const report: FileReport = {
  file: 'test/a.test.ts',
  timeMs: 1234,
  passed: 3,
  failed: 0,
  skipped: 2,
  failures: [],
  skips: [
    { name: 'portal on windows', reason: 'only on windows' },
    { name: 'transfer', reason: 'curl is not installed' },
  ],
  output: [],
};

t.test('a skip is excused only by another operating system', (t) => {
  t.equal(mayBeSkipped('only on windows', 'linux'), true);
  t.equal(mayBeSkipped('only on Linux, needs /proc', 'darwin'), true);
  t.equal(mayBeSkipped('only on linux', 'linux'), false);
  t.equal(mayBeSkipped('only on sundays', 'linux'), false);
  t.equal(mayBeSkipped('curl is not installed', 'linux'), false);
  t.equal(mayBeSkipped('', 'linux'), false);
  t.end();
});

t.test('in CI a skip without excuse is a failure; elsewhere it stays a skip', (t) => {
  const strict = judgeSkips(report, true, 'linux');
  t.match(strict.report, { passed: 3, failed: 1, skipped: 1 });
  t.same(
    strict.refused.map((skip) => skip.name),
    ['transfer'],
  );
  const relaxed = judgeSkips(report, false, 'linux');
  t.match(relaxed, { report: { failed: 0, skipped: 2 }, refused: [] });
  t.end();
});

t.test('what is printed of a file tells every skip and why', (t) => {
  const { report: judged, refused } = judgeSkips(report, true, 'linux');
  t.match(fileLine(judged), /FAIL +test\/a\.test\.ts +1\.2 s +3 passed, 1 failed, 1 skipped/);
  const text = problemLines(judged, refused).join('\n');
  t.match(text, /skipped: portal on windows \(only on windows\)/);
  t.match(text, /failed: skipped, but it has to run here: transfer \(curl is not installed\)/);
  t.end();
});

t.test('a failure is printed with its diagnostics and the output of its file', (t) => {
  const failed: FileReport = {
    ...report,
    failed: 1,
    skips: [],
    failures: [{ name: 'adds > one', diagnostics: { diff: '-1\n+2\n' } }],
    output: ['stray line'],
  };
  const text = problemLines(failed, []).join('\n');
  t.match(text, /failed: adds > one\n {10}diff: \|\n {12}-1\n {12}\+2\n/);
  t.match(text, /output:\n {10}stray line/);
  t.end();
});

t.test('the closing line is plain', (t) => {
  t.equal(tallyLine({ passed: 12, failed: 0, skipped: 1 }), '12 passed, 0 failed, 1 skipped');
  t.match(checkLine({ name: 'lint', ok: true, ms: 1500, output: '' }), /ok +lint +1\.5 s$/);
  t.equal(indent('a\n\nb\n', 2), '  a\n\n  b');
  t.end();
});

t.test('only files above the hard limit break the budget', (t) => {
  const source = [
    { file: 'src/a.ts', lines: 100 },
    { file: 'src/b.ts', lines: 400 },
    { file: 'src/c.ts', lines: 401 },
  ];
  const budget = weigh(source, [{ file: 'test/a.test.ts', lines: 500 }]);
  t.same(
    budget.tooLong.map((size) => size.file),
    ['src/c.ts'],
  );
  t.match(describe(budget), /3 files, 901 lines, median 400, tests 0\.55 x/);
  t.match(describe(budget), /median above 200/);
  t.match(describe(budget), /tests below 1\.2 x source/);
  t.notMatch(
    describe(weigh([{ file: 'a', lines: 10 }], [{ file: 'b', lines: 20 }])),
    /above|below/,
  );
  t.end();
});
