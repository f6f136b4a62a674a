/** What the tools of users report about files: Dockerfiles, the man page, the systemd unit, scripts. That bases are pinned is tested in ../files.test.ts. */
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import t from 'tap';
import { REGISTRY } from '../../../src/cli/registry.ts';
import { manPage } from '../../../tools/release/man-page.ts';
import { missing, run, tool } from '../support/toolbox.ts';

const ROOT = join(import.meta.dirname, '..', '..', '..');

for (const name of ['Dockerfile.linux', 'Dockerfile.windows']) {
  t.test(`hadolint finds nothing in ${name}`, { skip: missing('hadolint') }, async (t) => {
    const { code, text } = await run('hadolint', ['--failure-threshold=style', join(ROOT, name)]);
    t.equal(code, 0, text);
    t.equal(text, '');
  });
}

t.test('mandoc finds nothing wrong, and shows it', { skip: missing('mandoc') }, async (t) => {
  const page = manPage(REGISTRY, { version: '1.2.3', date: '2026-01-02' });
  // `-W warning`: everything from warnings on is an error; matters of style are not.
  const lint = await run('mandoc', ['-T', 'lint', '-W', 'warning'], { input: page });
  t.equal(lint.code, 0, lint.text);
  const shown = await run('mandoc', ['-T', 'ascii'], { input: page });
  // Bold letters are written twice, with a backspace between.
  t.match(shown.text.replaceAll(/.[\b]/g, ''), /--handover-socket/);
});

const UNIT = 'kpng-userspace@.service';
const skip = missing('systemd-analyze');
/** The highest exposure that passes, in tenths, of 100. */
const EXPOSURE = 30;

/** A file of the unit, with a program that there is. */
function unitFile(folder: string): string {
  const file = join(folder, UNIT);
  const unit = readFileSync(join(ROOT, 'deploy', 'systemd', UNIT), 'utf8');
  writeFileSync(file, unit.replace('/usr/bin/kpng-userspace', process.execPath));
  return file;
}

t.test('systemd reports no problems with the unit', { skip }, async (t) => {
  const good = await run('systemd-analyze', ['verify', '--man=no', unitFile(t.testdir())]);
  t.equal(good.code, 0, good.text);
  t.notMatch(good.text, UNIT, 'no remark about it');
});

t.test('not much is exposed, and the page says how much', { skip }, async (t) => {
  const flags = `--offline=true --no-pager --threshold=${EXPOSURE}`.split(' ');
  const args = ['security', ...flags, unitFile(t.testdir())];
  const { code, text } = await run('systemd-analyze', args);
  t.equal(code, 0, text);
  t.match(text, /exposure level/);
});

/** All shell scripts of the project. */
const SHELL = [
  '.ci/run',
  ...globSync('{deploy,test,tools,bench,examples}/**/*.sh', {
    cwd: ROOT,
    exclude: (name) => name === 'node_modules',
  }),
];

t.test('shellcheck reports no problems', { skip: missing('shellcheck') }, async (t) => {
  t.ok(SHELL.length > 3);
  const { code, text } = await run('shellcheck', ['--severity=style', ...SHELL], { cwd: ROOT });
  t.equal(code, 0, text);
  const completion = ['--severity=error', '--shell=bash', 'assets/completion/kpng-userspace.bash'];
  const bash = await run('shellcheck', completion, { cwd: ROOT });
  t.equal(bash.code, 0, bash.text);
});

/** What the grammar of PowerShell cannot make sense of, as `line:column`. */
interface SyntaxNode {
  readonly isError: boolean;
  readonly isMissing: boolean;
  readonly startPosition: { readonly row: number; readonly column: number };
  readonly children: readonly SyntaxNode[];
}
interface TreeSitter {
  readonly Parser: {
    init(options: object): Promise<void>;
    new (): { setLanguage(language: unknown): void; parse(text: string): { rootNode: SyntaxNode } };
  };
  readonly Language: { load(path: string): Promise<unknown> };
}

async function powershell(): Promise<(text: string) => SyntaxNode> {
  const folder = tool('tree-sitter');
  const { Parser, Language } = createRequire(join(folder, 'x.js'))(folder) as TreeSitter;
  await Parser.init({ locateFile: (name: string) => join(folder, 'wasm', name) });
  const parser = new Parser();
  parser.setLanguage(await Language.load(join(folder, 'wasm', 'tree-sitter-powershell.wasm')));
  return (text) => parser.parse(text).rootNode;
}

function everyNode(node: SyntaxNode): SyntaxNode[] {
  return [node, ...node.children.flatMap(everyNode)];
}
const faults = (root: SyntaxNode): string[] =>
  everyNode(root)
    .filter((node) => node.isError || node.isMissing)
    .map(({ startPosition: { row, column } }) => `${row + 1}:${column + 1}`);

t.test('PowerShell can be parsed', { skip: missing('tree-sitter') }, async (t) => {
  const parse = await powershell();
  const scripts = new Map(
    globSync(['deploy/**/*.ps1', 'assets/**/*.powershell'], { cwd: ROOT }).map((file) => [
      file,
      readFileSync(join(ROOT, file), 'utf8'),
    ]),
  );
  t.ok(scripts.size > 1);
  for (const [name, text] of scripts) {
    t.same(faults(parse(text)), [], name);
  }
});
