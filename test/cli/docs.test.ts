import { configSchema } from '../../tools/docs/config-schema.ts';
import { fillPage } from '../../tools/docs/fill.ts';
import { cliParts } from '../../tools/docs/pages.ts';
import { manPage } from '../../tools/release/man-page.ts';
import { runHere } from '../support/cli.ts';
import { listItems } from '../support/markdown.ts';
import { Ajv } from 'ajv';
import { existsSync, globSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { format, resolveConfig as prettierConfig } from 'prettier';
import t from 'tap';
import { parseAllDocuments } from 'yaml';
import { GLOBAL_FLAGS } from '../../src/cli/flags/global.ts';
import { type FlagTable, formatted } from '../../src/cli/flags/table.ts';
import { answerQuery, helpText } from '../../src/cli/help.ts';
import { configurableFlags, parse, type Topic } from '../../src/cli/parse.ts';
import { REGISTRY } from '../../src/cli/registry.ts';
import { fieldName } from '../../src/config/fields.ts';
import { parseConfig, resolveConfig } from '../../src/config/file.ts';
import { ERROR_CODES } from '../../src/errors.ts';

const { sources, sinks, others } = REGISTRY;
const COMMANDS = [...sources, ...sinks, ...others];
const TABLES = new Map<string, FlagTable>([
  ['global', GLOBAL_FLAGS],
  ...[...sources, ...sinks].map(({ word, flags }) => [word, flags] as const),
]);

t.test('every flag has a plain name, a valid default, and whole sentences', async (t) => {
  for (const [word, table] of TABLES) {
    for (const [name, spec] of Object.entries(table)) {
      const label = `${word} --${name}`;
      t.match(name, /^(?!no-)[a-z]+\d?(-[a-z]+)*$/, label);
      t.match(spec.help, /^[A-Za-z].*\.$/s, label);
      t.not(spec.group, '', label);
      if (spec.default === undefined) continue;
      t.same(spec.kind.parse(formatted(spec, spec.default)), spec.default, label);
    }
  }
});

t.test('no name means two things, on one command line or to the splitter', async (t) => {
  const namesOf = (table: FlagTable): string[] =>
    Object.entries(table).flatMap(([name, { aliases = [] }]) => [name].concat(aliases));
  for (const source of sources) {
    for (const sink of sinks) {
      const names = [GLOBAL_FLAGS, source.flags, sink.flags].flatMap(namesOf);
      t.equal(new Set(names).size, names.length, `${source.word} ${sink.word}`);
    }
  }
  const seen = new Map<string, string>();
  for (const [word, table] of TABLES) {
    for (const [name, { kind, short, aliases }] of Object.entries(table)) {
      const meaning = JSON.stringify([kind.placeholder, short, aliases]);
      t.equal(seen.get(name) ?? meaning, meaning, `${word} --${name}`);
      seen.set(name, meaning);
    }
  }
});

t.test('help: commands, then what they do, forms, examples, and flags in groups', async (t) => {
  const help = async (...words: string[]): Promise<string> => {
    const { code, stdout, stderr } = await runHere('help', ...words);
    t.same([code, stderr], [0, '']);
    return stdout;
  };
  const root = await help();
  t.match(root, /\nSources:\n {2}kube {2,}Services, /);
  t.match(root, /\nBackends:\n {2}to-userspace {2,}Proxy /);
  t.match(root, /\nExit codes:\n {2}0 {2}Ended as asked\n/);
  t.match(root, /--metrics-bind-address/);
  const source = await help('local');
  t.match(source, /^kpng-userspace local: The local view of this node/);
  t.match(source, /\nUsage:\n {2}kpng-userspace local to-userspace \[flags\]\n/);
  t.notMatch(source, /local to-api \[flags\]/);
  t.match(source, /\n\nWatches a server[^\n]*\n[^\n]*\n\nTLS is used/, 'paragraphs');
  const command = await help('file', 'to-callout');
  t.match(command, /^kpng-userspace file to-callout: Run a program/);
  t.match(command, /\n\nSource: Services, endpoints and nodes from a YAML/);
  t.match(command, /# shows what a state file means for this node, in colour/);
  t.notMatch(command, /# runs a script at every change of a kpng server/, 'only what fits');
  t.match(command, /\nSource: file:\n {2}-i, --input <path> +The state file\. \(default globalv1-/);
  const long = /\n {6}--metrics-bind-address <ip:port>\n((?: {30,}.*\n)+)/.exec(command)?.[1];
  t.equal(new Set(long?.match(/^ +/gm)).size, 1, 'one indent');
});

/** The candidates for a line with the cursor at its end. */
function at(line: string): string[] {
  return answerQuery(line.split(' '))
    .split('\n')
    .slice(0, -1)
    .map((answer) => answer.replace(/\t.*/, ''));
}

t.test('the command prints the script of a shell, which asks the program', async (t) => {
  for (const shell of ['bash', 'zsh', 'fish', 'powershell']) {
    const { code, stdout } = await runHere('completion', shell);
    t.equal(code, 0);
    const path = join(import.meta.dirname, `../../assets/completion/kpng-userspace.${shell}`);
    t.equal(stdout, readFileSync(path, 'utf8'));
    t.match(stdout, /completion query/);
  }
  t.match(await runHere('completion', 'csh'), { code: 2, stderr: /expected one of bash, zsh/ });
  const answer = await runHere('completion', 'query', 'kube', '--drain-t');
  t.match(answer, { code: 0, stdout: /^--drain-timeout\t\w.*\n$/ });
});

/** Lines with the cursor at their end, and all candidates. */
const COMPLETIONS: readonly (readonly [line: string, ...candidates: string[]])[] = [
  // Words: sources and commands first, then the sinks of each.
  ['ku', 'kube'],
  ['kube to-l', 'to-local'],
  ['local to-json '],
  ['help ku', 'kube'],
  ['completion ', 'bash', 'zsh', 'fish', 'powershell'],
  ['config ', 'validate', 'print'],
  ['cleanup '],
  // Flags: those of the words on the line, wherever they stand.
  ['file to-local to-userspace --handover-s', '--handover-socket'],
  ['file to-local to-json --handover-s'],
  ['-v=4 file --inp', '--input'],
  ['--inp'],
  // Values: choices, on and off, files, and nothing where anything may stand.
  ['local to-userspace --portal nf', 'nftables'],
  ['local to-userspace --portal=ad', '--portal=address'],
  ['local to-userspace -portal=ad', '-portal=address'],
  ['local to-userspace --dry-run=', '--dry-run=true', '--dry-run=false'],
  // A flag that is on or off takes no word.
  ['local to-userspace --dry-run '],
  ['file --input ', ':files'],
  ['file -i ', ':files'],
  ['file --input=st', ':files'],
  ['file -i=st', ':files'],
  ['local --tls-ca=', ':files'],
  ['config validate ', ':files'],
  ['validate ', ':files'],
  ['local --api '],
  ['local --nonsense='],
  // A forgotten value is not asked for once another argument follows.
  ['file --input --logging-format json to-lo', 'to-local'],
];

t.test('candidates are words, flags or values that fit the line', async (t) => {
  for (const [line, ...candidates] of COMPLETIONS) t.same(at(line), candidates, line);
  for (const [line, some, others = []] of [
    ['', ['kube', 'file', 'status', 'cleanup', 'completion']],
    ['kube ', ['to-api', 'to-userspace']],
    ['kube to-local ', ['to-userspace'], ['to-api']],
    ['local ', ['to-userspace'], ['to-file']],
    ['cleanup --', ['--kube-proxy-userspace']],
    ['kube --', ['--help']],
    // The value is no word.
    ['file --input state.yaml ', ['to-local']],
  ] as [string, string[], string[]?][]) {
    const found = at(line);
    t.ok(
      some.every((each) => found.includes(each)) && !others.some((each) => found.includes(each)),
      line,
    );
  }
});

const manual = manPage(REGISTRY, { version: '1.2.3', date: '2026-01-02' });

t.test('the man page has every command and flag, in man(7) requests and text', async (t) => {
  for (const { word, flags } of COMMANDS) {
    t.ok(manual.includes(`.B ${word.replaceAll('-', '\\-')}`), word);
    for (const name of Object.keys({ ...flags, ...GLOBAL_FLAGS })) {
      t.ok(manual.includes(`\\fB\\-\\-${name.replaceAll('-', '\\-')}\\fR`), `--${name}`);
    }
  }
  t.match(manual, /^\.TH KPNG\\-USERSPACE 1 "2026-01-02" "kpng\\-userspace 1\.2\.3"/);
  const known = new Set(['TH', 'SH', 'TP', 'IP', 'B', 'BR', 'nf', 'fi']);
  for (const line of manual.split('\n')) {
    const request = /^[.'](\w*)/.exec(line)?.[1];
    if (request !== undefined) t.ok(known.has(request), line);
    t.notMatch(line, /[^\x20-\x7e]/, 'plain characters only');
  }
});

const root = join(import.meta.dirname, '..', '..');
const docs = join(root, 'docs');
const OWN = 'apiVersion: kpng-userspace/v1alpha1\nkind: UserspaceProxyConfiguration\n';
const FIELDS = configurableFlags();
const SCHEMA = join(root, 'schema', 'configuration.schema.json');

function page(name: string): string {
  return readFileSync(join(docs, name), 'utf8');
}

t.test('pages and schema are what the flag tables say', async (t) => {
  const schema = await format(JSON.stringify(configSchema(), null, 2), {
    ...(await prettierConfig(SCHEMA)),
    parser: 'json',
  });
  const made: [string, string][] = [
    [
      join(docs, 'reference/command-line.md'),
      fillPage(page('reference/command-line.md'), cliParts(REGISTRY)),
    ],
    [SCHEMA, schema],
  ];
  for (const [path, text] of made) {
    if (process.env['UPDATE_DOCS'] === '1') writeFileSync(path, text);
    t.equal(readFileSync(path, 'utf8'), text, 'UPDATE_DOCS=1 npx tap test/cli/docs.test.ts');
  }
});

t.test('every command line of a help text is understood', async (t) => {
  const lines = COMMANDS.flatMap(({ examples }) => Object.keys(examples));
  const config = parseConfig('c.yaml', `${OWN}command: file to-json\n`, FIELDS);
  t.ok(lines.length >= 20);
  for (const line of lines) {
    const [words = ''] = line.split(/ [|>] /);
    const invocation = parse(words.split(' '), {}, config);
    t.match(invocation.kind, /^(?:run|other)$/, line);
  }
});

t.test('help fits a terminal, and teaches with examples', async (t) => {
  const pairs = sources.flatMap((source) => sinks.map((sink) => ({ source, sink })));
  const single = [...others.map((other) => ({ other })), ...sources.map((source) => ({ source }))];
  const topics: Topic[] = [{}, ...single, ...pairs];
  for (const text of topics.map((topic) => helpText(topic))) {
    const lines = text.split('\n');
    const [first = ''] = lines;
    for (const line of lines) t.ok(line.length <= 110, `${first}: ${line}`);
    t.match(text, /\nUsage:\n {2}kpng-userspace /, first);
    t.match(text, /\nExamples:\n {2}# .+\n {2}kpng-userspace /, first);
    t.ok(text.endsWith('\n') && !text.endsWith('\n\n'));
  }
});

t.test('errors.md has every code, what it means and whether it is retried', async (t) => {
  const documented = listItems(page('reference/errors.md')).map(({ names: [code], text }) => {
    const [, mark, meaning] = /^(?: \((retried)\): )?(.*)\n {2}\S/.exec(text) ?? [];
    return { code, meaning, retried: mark !== undefined };
  });
  t.same(
    documented,
    Object.entries(ERROR_CODES).map(([code, { summary, retried }]) => {
      return { code, meaning: summary, retried };
    }),
    'in the order of src/errors.ts',
  );
});

/** Names and links in the pages exist. For what they show, see test/docs. */

const pages = globSync('{*.md,docs/**/*.md}', { cwd: root }).map((name) => ({
  name,
  text: readFileSync(join(root, name), 'utf8'),
}));

t.test('every link within the repository has a target', async (t) => {
  for (const { name, text } of pages) {
    for (const [, target = '', anchor] of text.matchAll(/\]\((?!\w+:)([^)#]*)(?:#([^)]*))?\)/g)) {
      const file = target === '' ? name : join(dirname(name), target);
      t.ok(existsSync(join(root, file)), `${name}: ${target}`);
      if (anchor === undefined) continue;
      const headings = readFileSync(join(root, file), 'utf8').match(/^#+ .*$/gm) ?? [];
      t.ok(
        headings.some((heading) => anchorOf(heading) === anchor),
        `${name}: #${anchor}`,
      );
    }
  }
});

/** As GitHub makes it. */
function anchorOf(heading: string): string {
  return heading
    .replace(/^#+ /, '')
    .toLowerCase()
    .replaceAll(/[^\w\- ]/g, '')
    .replaceAll(' ', '-');
}

function valid(text: string): boolean {
  const validate = new Ajv({ allowUnionTypes: true }).compile(
    JSON.parse(readFileSync(SCHEMA, 'utf8')) as object,
  );
  return [...parseAllDocuments(text)].every((document) => validate(document.toJS()));
}

t.test('the schema takes every default, and refuses what the program refuses', async (t) => {
  for (const [flag, spec] of configurableFlags()) {
    const field = fieldName(flag);
    const text = formatted(spec, spec.default);
    if (text === '') continue;
    const { type } = spec.kind.schema;
    const plain = type === 'integer' || type === 'boolean' ? text : JSON.stringify(text);
    t.ok(valid(`${OWN}${field}: ${plain}\n`), `${field}: ${plain}`);
    t.ok(resolveConfig('x', `${OWN}${field}: ${plain}\n`, FIELDS).ok, field);
  }
  for (const line of [
    'drainTimeout: 5',
    'v: 11',
    'nope: 1',
    'portal: x',
    'cleanupOnExit: "true"',
  ]) {
    t.notOk(valid(`${OWN}${line}\n`), `schema: ${line}`);
    t.notOk(resolveConfig('x', `${OWN}${line}\n`, FIELDS).ok, `program: ${line}`);
  }
});
