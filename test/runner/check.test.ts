import t from 'tap';
import { delimiter } from 'node:path';
import { runCheck, runChecks, toolEnv, type CheckResult } from './check.ts';

const root = process.cwd();

t.test('a command that exits 0 is fine; any other end is told', async (t) => {
  const fine = await runCheck(
    { name: 'a', command: process.execPath, args: ['-e', 'console.log("hello")'] },
    root,
  );
  t.match(fine, { name: 'a', ok: true, output: 'hello\n' });

  const failed = await runCheck(
    {
      name: 'b',
      command: process.execPath,
      args: ['-e', 'console.log("x"); console.error("y"); process.exitCode = 3'],
    },
    root,
  );
  t.equal(failed.ok, false);
  t.match(failed.output, /x\n/);
  t.match(failed.output, /y\n/);
  t.match(failed.output, /ended with code 3/);

  const missing = await runCheck({ name: 'c', command: 'no-such-command-here', args: [] }, root);
  t.equal(missing.ok, false);
  t.match(missing.output, /could not be started/);
});

t.test('every check is run, also after a failure', async (t) => {
  const seen: CheckResult[] = [];
  const check = (name: string, ok: boolean) => ({ name, run: () => ({ ok, text: name }) });
  await runChecks([check('a', false), check('b', true), check('c', false)], 2, root, (result) =>
    seen.push(result),
  );
  const verdicts = Object.fromEntries(seen.map((result) => [result.name, result.ok]));
  t.same(verdicts, { a: false, b: true, c: false });
});

t.test("the project's own tools come first on the path", (t) => {
  t.match(
    toolEnv('/project').PATH?.split(delimiter)[0]?.replaceAll('\\', '/'),
    '/project/node_modules/.bin',
  );
  t.end();
});
