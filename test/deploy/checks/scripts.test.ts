/** Scripts: shellcheck for shells, a parser for PowerShell. */
import { globSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import t from 'tap';
import { SCRIPTS } from '../../../src/cli/completion/scripts.ts';
import { missing, run, tool } from '../support/toolbox.ts';

const ROOT = join(import.meta.dirname, '..', '..', '..');

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
  const bash = await run('shellcheck', ['--severity=error', '--shell=bash', '-'], {
    input: SCRIPTS.bash,
  });
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
    globSync('deploy/**/*.ps1', { cwd: ROOT }).map((file) => [
      file,
      readFileSync(join(ROOT, file), 'utf8'),
    ]),
  );
  t.ok(scripts.size > 0);
  scripts.set('completion', SCRIPTS.powershell);
  for (const [name, text] of scripts) {
    t.same(faults(parse(text)), [], name);
  }
});
