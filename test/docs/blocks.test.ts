/**
 * Nothing on a page escapes the tests. A block is of one of these kinds, and anything else fails:
 *
 * - `console`: run by a test of test/docs with `testPage`. `<!-- run apart -->`: in a shell of its own.
 *   `<!-- in a namespace -->`: by test/system.
 * - `sh`, `powershell`, `bat` after `<!-- not run: REASON -->`, one of the reasons below: what of it
 *   is ours is there.
 * - `yaml`, `json`, `js`, `ts`, `promql`: can be read, and means something.
 * - `text` after `<!-- drawing -->`, `<!-- form -->`, `<!-- compared by: FILE -->`, a test that names the page,
 *   or `<!-- not compared: REASON -->`.
 */
import { existsSync, globSync, readFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { basename, join } from 'node:path';
import t from 'tap';
import { parseAllDocuments } from 'yaml';
import { configurableFlags } from '../../src/cli/parse.ts';
import { resolveConfig } from '../../src/config/file.ts';
import { StateParser } from '../../src/file/parse.ts';
import { formatProblems } from '../../src/file/problem.ts';
import { problemsOf, blocksOf, type Block } from '../support/markdown.ts';

const root = join(import.meta.dirname, '..', '..');
const read = (path: string): string => readFileSync(join(root, path), 'utf8');
const pages = globSync('{*.md,docs/**/*.md,examples/**/*.md,deploy/**/*.md}', { cwd: root }).sort();

/** Why a command is not run by a test. */
const REASONS = new Set([
  'needs a cluster',
  'needs Windows',
  'needs another program',
  'needs another system',
  'needs a network',
  'changes the machine',
  'takes minutes',
]);

/** What runs the commands of pages, by their mark. */
const RUNS: Readonly<Record<string, string>> = {
  '': 'test/docs/*.test.ts',
  'run apart': 'test/docs/*.test.ts',
  'in a namespace': 'test/system/cli.test.ts',
};

/** What keeps a block from being believed. */
function problemsWith(page: string, block: Block): string[] {
  const { language, mark, text } = block;
  switch (language) {
    case 'console': {
      const tests = RUNS[mark];
      if (tests === undefined) return [`unknown mark ${mark}`];
      if (!text.startsWith('$ ')) return ['no command: lines begin with `$ `'];
      const runs = globSync(tests, { cwd: root })
        .map(read)
        .some((test) => {
          return test.includes(`testPage('${page}'`) && test.includes(mark && `mark: '${mark}'`);
        });
      return runs ? [] : [`${tests} does not run it`];
    }
    case 'sh':
    case 'powershell':
    case 'bat':
      return [
        ...reasonProblems(mark),
        ...text.replaceAll('\\\n', ' ').split('\n').flatMap(problemsOf),
      ];
    case 'yaml':
      return yamlProblems(mark, text);
    case 'json':
      return attempt(() => void JSON.parse(text));
    case 'js':
    case 'ts':
      return attempt(() => void stripTypeScriptTypes(text));
    case 'promql':
      return [];
    case 'text': {
      if (mark === 'form') {
        const lines = [...text.matchAll(/^Command line: +(.*)$/gm)];
        return lines.flatMap(([, line = '']) => problemsOf(line));
      }
      if (mark.startsWith('not compared: ')) return reasonProblems(mark);
      if (mark === 'drawing') {
        const commands = text
          .split('\n')
          .filter((line) => /^\s*(?:\$ |kpng|npm |curl )/.test(line));
        return commands.map((line) => `not a drawing: ${line}`);
      }
      const test = /^compared by: (\S+)$/.exec(mark)?.[1];
      return test !== undefined && names(test, page) ? [] : ['nothing compares it'];
    }
    default:
      return [`a block of the kind ${JSON.stringify(language)}`];
  }
}

function names(test: string, page: string): boolean {
  return existsSync(join(root, test)) && read(test).includes(basename(page));
}

function reasonProblems(mark: string): string[] {
  const reason = /^not (?:run|compared): (.*)$/.exec(mark)?.[1];
  if (reason !== undefined && REASONS.has(reason)) return [];
  return [`neither run nor marked with a reason, but with ${JSON.stringify(mark)}`];
}

function yamlProblems(mark: string, text: string): string[] {
  // That these are refused is tested with their errors.
  if (mark === 'refused') return [];
  const documents = parseAllDocuments(text);
  const broken = documents.flatMap(({ errors }) => errors.map(({ message }) => message));
  if (broken.length > 0) return broken;
  if (/^services:/m.test(text)) {
    const state = new StateParser().parse(text);
    return state.ok ? [] : [formatProblems('shown', state.errors)];
  }
  if (/^apiVersion: (?:kubeproxy\.config|kpng-userspace)/m.test(text)) {
    const config = resolveConfig('shown', text, configurableFlags());
    return config.ok ? [] : ['the configuration is refused'];
  }
  const unknown = documents.filter((each) => !each.has('apiVersion') || !each.has('kind'));
  return unknown.map(
    () => 'neither a state file, nor a configuration, nor an object of Kubernetes',
  );
}

function attempt(action: () => void): string[] {
  try {
    action();
    return [];
  } catch (error) {
    return [String(error)];
  }
}

t.test('every block of every page is run, compared or read', async (t) => {
  let count = 0;
  for (const page of pages) {
    for (const block of blocksOf(read(page))) {
      count += 1;
      t.same(problemsWith(page, block), [], `${page}:${block.line}`);
    }
  }
  t.ok(count > 60, `${count} blocks`);
});
