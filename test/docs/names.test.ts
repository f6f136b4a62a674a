/**
 * Whatever a page names is there: flags, metrics, codes, variables, channels, files, command lines.
 * That everything there is has its line on a page is tested beside the lists: test/cli/docs.test.ts,
 * test/observe/docs.test.ts, test/admin/docs.test.ts.
 */
import { existsSync, globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { configurableFlags } from '../../src/cli/parse.ts';
import { variableOf } from '../../src/cli/flags/table.ts';
import { FOREIGN_FLAGS } from '../../src/cli/flags/read.ts';
import { problemsOf, proseOf } from '../support/markdown.ts';

const root = join(import.meta.dirname, '..', '..');
const read = (path: string): string => readFileSync(join(root, path), 'utf8');
const pages = globSync('{*.md,docs/**/*.md}', { cwd: root }).sort();

function all(text: string, pattern: RegExp): string[] {
  return [...new Set([...text.matchAll(pattern)].map(([whole, name = whole]) => name))];
}

const METRICS = new Set(all(read('docs/reference/metrics.md'), /^\* `(\w+)`/gm));
const CHANNELS = new Set(all(read('docs/reference/events.md'), /^\* `([\w:-]+)`/gm));
const FLAGS = new Set(all(read('docs/reference/command-line.md'), /(?<![\w-])--[a-z][\w-]+/g));
/** Error codes, and variables of the environment. */
const CODES = new Set([
  ...all(read('docs/reference/errors.md'), /^\* `(KPNG_\w+)`/gm),
  ...[...configurableFlags().keys()].map(variableOf),
  'KPNG_CONFIG',
  'KPNG_TEST_ENGINE',
]);
/** Flags of other programs, and of the benchmarks. */
const FOREIGN = new Set([
  ...[...FOREIGN_FLAGS.keys()].map((name) => `--${name}`),
  ...'--allow-ffi --build-arg --help --no-concurrent-recompilation --noflush'.split(' '),
  ...'--invocation-count-for-turbofan --permission --proxy-mode --semi-space-growth-factor --write-docs'.split(
    ' ',
  ),
]);

const isMetric = (name: string): boolean =>
  name.endsWith('_') || METRICS.has(name) || METRICS.has(name.replace(/_(bucket|sum|count)$/, ''));

/** Paths that a run writes. */
const isWritten = (path: string): boolean => path.startsWith('bench/results/');

/** What a page names that there is not. */
function unknownOn(text: string): string[] {
  const prose = proseOf(text);
  const commands = all(
    prose,
    /`((?:npm (?:start|run)|kpng(?:-userspace|-json|-callout)?|winuserspace) [^`…]+)`/g,
  ).filter((line) => !/ARGS|\.\.\./.test(line));
  return [
    ...all(text, /\b(?:kpng_userspace|kubeproxy)_[a-z][a-z_]+/g).filter((name) => !isMetric(name)),
    ...all(text, /\bKPNG_[A-Z_]*[A-Z]\b/g).filter((name) => !CODES.has(name)),
    ...all(text, /\bkpng-userspace:[a-z]+:[a-z-]+/g).filter((name) => !CHANNELS.has(name)),
    ...all(prose, /`(--[a-z][\w-]+)/g).filter((name) => !FLAGS.has(name) && !FOREIGN.has(name)),
    ...all(prose, /`((?:bench|deploy|docs|examples|schema|src|test|tools)\/[\w./@-]+)`/g).filter(
      (path) => !existsSync(join(root, path)) && !isWritten(path),
    ),
    // Prose may leave out what does not matter there.
    ...commands.flatMap((line) =>
      problemsOf(line.replaceAll('\\|', '|').replace('SOURCE', 'local')).filter(
        (problem) => !/no (?:backend|source) was named|needs a value/.test(problem),
      ),
    ),
  ];
}

t.test('everything that a page names exists', async (t) => {
  t.ok(METRICS.size > 70 && CHANNELS.size > 50 && FLAGS.size > 90 && CODES.size > 100);
  for (const page of pages) t.same(unknownOn(read(page)), [], page);
});
