import t from 'tap';
import { Readable } from 'node:stream';
import { readTap, type FileReport } from './tap-report.ts';

async function read(text: string): Promise<{ files: FileReport[]; total: object }> {
  const files: FileReport[] = [];
  const total = await readTap(Readable.from([Buffer.from(text)]), (file) => files.push(file));
  return { files, total };
}

/** A TAP stream with one file whose body is `body`, closed with `end`. */
function file(body: string, end = 'ok 1 - test/a.test.ts # time=12.5ms'): string {
  const indented = body.trim().replaceAll(/^/gm, '    ');
  return `TAP version 14\n1..1\n# Subtest: test/a.test.ts\n${indented}\n${end}\n`;
}

t.test('a block without blocks in it is one test, however many assertions it has', async (t) => {
  const { files, total } = await read(
    file(`
# Subtest: one
    ok 1 - a
    ok 2 - b
    1..2
ok 1 - one # time=1ms
# Subtest: outer
    # Subtest: inner
        ok 1 - a
        1..1
    ok 1 - inner
    # Subtest: inner two
        ok 1 - a
        1..1
    ok 2 - inner two
    1..2
ok 2 - outer
1..2`),
  );
  t.same(total, { passed: 3, failed: 0, skipped: 0 });
  t.match(files, [{ file: 'test/a.test.ts', passed: 3, failed: 0, timeMs: 12.5, failures: [] }]);
});

t.test('loose assertions of a file are one test together', async (t) => {
  const { total } = await read(file('ok 1 - a\nok 2 - b\n1..2'));
  t.same(total, { passed: 1, failed: 0, skipped: 0 });
});

t.test('a failed assertion is told with its path and its diagnostics', async (t) => {
  const { files, total } = await read(
    file(
      `
# Subtest: outer
    # Subtest: inner
        ok 1 - fine
        not ok 2 - one is two
          ---
          diff: "-1 +2"
          ...
        1..2
    not ok 1 - inner
    1..1
not ok 1 - outer
1..1`,
      'not ok 1 - test/a.test.ts',
    ),
  );
  t.same(total, { passed: 0, failed: 1, skipped: 0 }, 'the blocks around it are not counted again');
  t.match(files[0]?.failures, [
    { name: 'outer > inner > one is two', diagnostics: { diff: '-1 +2' } },
  ]);
});

t.test('skipped blocks and assertions count each, with their reasons', async (t) => {
  const { files, total } = await read(
    file(`
ok 1 - needs a thing # SKIP no thing here
# Subtest: partly
    ok 1 - fine
    ok 2 - IPv6 is off # SKIP
    1..2
ok 2 - partly
ok 3 - not written # TODO soon
1..3`),
  );
  t.same(total, { passed: 1, failed: 0, skipped: 3 });
  t.same(
    files[0]?.skips.map((skip) => skip.reason).toSorted(),
    ['IPv6 is off', 'no thing here', 'todo: soon'].toSorted(),
  );
});

t.test('a block without assertions is a test: it passes by not throwing', async (t) => {
  const { total } = await read(
    file(`
# Subtest: property
    1..0
ok 1 - property
# Subtest: elsewhere
    1..0 # only on windows
ok 2 - elsewhere # SKIP only on windows
1..2`),
  );
  t.same(total, { passed: 1, failed: 0, skipped: 1 });
});

t.test('a file that is skipped as a whole is one skipped test', async (t) => {
  const { files, total } = await read(
    'TAP version 14\n# Subtest: test/w.test.ts\n    1..0 # only on windows\nok 1 - test/w.test.ts # SKIP only on windows\n1..1\n',
  );
  t.same(total, { passed: 0, failed: 0, skipped: 1 });
  t.match(files[0]?.skips, [{ reason: 'only on windows' }]);
});

t.test('a file that does not load is one failed test, told without tap internals', async (t) => {
  const { files, total } = await read(
    'TAP version 14\n# Subtest: test/d.test.ts\n    1..0\nnot ok 1 - test/d.test.ts\n  ---\n  exitCode: 1\n  args:\n    - x\n  ...\n1..1\n',
  );
  t.same(total, { passed: 0, failed: 1, skipped: 0 });
  t.same(files[0]?.failures[0]?.diagnostics, { exitCode: 1 });
});

t.test('a block that ends early fails though its assertions passed', async (t) => {
  const { files, total } = await read(
    file(
      `
# Subtest: plans two
    ok 1 - a
    1..1
not ok 1 - plans two
1..1`,
      'not ok 1 - test/a.test.ts',
    ),
  );
  t.match(total, { failed: 1 });
  t.match(files[0]?.failures, [{ name: 'plans two' }]);
});

t.test('files are told one by one and their other output is kept, within bounds', async (t) => {
  const noise = Array.from({ length: 500 }, (_, i) => `    noise ${i}`).join('\n');
  const { files, total } = await read(
    `TAP version 14\n# Subtest: a\n    early\n    ok 1 - x\n${noise}\n    1..1\nok 1 - a\n# Subtest: b\n    ok 1 - x\n    1..1\nok 2 - b\n1..2\n`,
  );
  t.same(total, { passed: 2, failed: 0, skipped: 0 });
  t.same(
    files.map((report) => report.file),
    ['a', 'b'],
  );
  t.equal(files[0]?.output.length, 200);
  t.equal(files[0]?.output[0], 'early');
  t.equal(files[1]?.output.length, 0);
});
