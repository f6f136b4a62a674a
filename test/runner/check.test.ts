import t from 'tap';
import { delimiter, dirname, join } from 'node:path';
import { runCheck, runChecks, toolEnv, toolScript, type CheckResult } from './check.ts';

const root = process.cwd();

t.test('a script that exits 0 is fine; any other end is told with its output', async (t) => {
  const folder = t.testdir({
    'fine.cjs': 'console.log("hello", process.argv[2])',
    'bad.cjs': 'console.log("x"); console.error("y"); process.exitCode = 3',
  });
  const fine = await runCheck({ name: 'a', script: join(folder, 'fine.cjs'), args: ['you'] }, root);
  t.match(fine, { name: 'a', ok: true, output: 'hello you\n' });

  const failed = await runCheck({ name: 'b', script: join(folder, 'bad.cjs'), args: [] }, root);
  t.equal(failed.ok, false);
  t.match(failed.output, /x\n/);
  t.match(failed.output, /y\n/);
  t.match(failed.output, /b ended with code 3/);

  const missing = await runCheck({ name: 'c', script: join(folder, 'none.cjs'), args: [] }, root);
  t.equal(missing.ok, false);
  t.match(missing.output, /none\.cjs/);
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

t.test("this Node and the project's own tools come first on the path", (t) => {
  const path = toolEnv('/project').PATH?.split(delimiter) ?? [];
  t.equal(path[0], dirname(process.execPath));
  t.equal(path[1], join('/project', 'node_modules', '.bin'));
  t.end();
});

t.test("a tool's script is found by its package, with one command or several", (t) => {
  const folder = t.testdir({
    node_modules: {
      one: { 'package.json': '{"bin":"./bin/one.cjs"}' },
      two: { 'package.json': '{"bin":{"tool":"lib/tool.js"}}' },
    },
  });
  const modules = join(folder, 'node_modules');
  t.equal(toolScript(folder, 'one'), join(modules, 'one/bin/one.cjs'));
  t.equal(toolScript(folder, 'two', 'tool'), join(modules, 'two/lib/tool.js'));
  t.throws(() => toolScript(folder, 'two'), /two has no command two/);
  t.end();
});
