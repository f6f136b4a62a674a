import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { manPage } from '../../tools/release/man-page.ts';
import t from 'tap';
import { answerQuery } from '../../src/cli/completion.ts';
import { GLOBAL_FLAGS } from '../../src/cli/flags/global.ts';
import { defaultText, type FlagTable } from '../../src/cli/flags/table.ts';
import { parse } from '../../src/cli/parse.ts';
import { REGISTRY } from '../../src/cli/registry.ts';
import { runHere } from '../support/cli.ts';

const TABLES: [string, FlagTable][] = [
  ['global', GLOBAL_FLAGS],
  ...[...REGISTRY.sources, ...REGISTRY.sinks].map(({ word, flags }): [string, FlagTable] => [
    word,
    flags,
  ]),
];

t.test('every flag has a plain name, a valid default that is shown, and whole sentences', (t) => {
  for (const [word, table] of TABLES) {
    for (const [name, spec] of Object.entries(table)) {
      const label = `${word} --${name}`;
      t.match(name, /^(?!no-)[a-z]+\d?(-[a-z]+)*$/, label);
      t.match(spec.help, /^[A-Za-z].*\.$/s, label);
      t.not(spec.group, '', label);
      if (spec.default === undefined) continue;
      t.same(spec.kind.parse(spec.kind.format(spec.default)), spec.default, label);
      t.ok(defaultText(spec) !== undefined || spec.kind.format(spec.default) === '', label);
    }
  }
  t.end();
});

t.test('no name means two things, on one command line or to the splitter', (t) => {
  const namesOf = (table: FlagTable): string[] =>
    Object.entries(table).flatMap(([name, { aliases = [] }]) => [name].concat(aliases));
  for (const source of REGISTRY.sources) {
    for (const sink of REGISTRY.sinks) {
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
  t.end();
});

t.test('help: commands, then what they do, forms, examples, and flags in groups', async (t) => {
  const help = async (...words: string[]) => (await runHere('help', ...words)).stdout;
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
  t.match(
    command,
    /\n {6}--callout <program> [^-]*Environment:\s+CALLOUT\. \(default \/bin\/cat\)\n/,
  );
  t.match(
    command,
    /--node-name <name> [^]*Also\s+--hostname-override\.\s+\(default the host name\)\n/,
  );
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

t.test(
  'every flag of every command is offered, and the parser knows what is offered',
  async (t) => {
    for (const source of REGISTRY.sources) {
      for (const sink of REGISTRY.sinks) {
        const words = [source.word, sink.word];
        if (source.scope === 'local' && sink.scope === 'global') continue;
        const offered = at(`${words.join(' ')} --`);
        for (const name of Object.keys({ ...source.flags, ...sink.flags })) {
          t.ok(offered.includes(`--${name}`), `${words.join(' ')} --${name}`);
        }
        const line = `${words.join(' ')} `;
        t.same(at(line), [], line);
      }
    }
    for (const word of at('').filter((each) => each !== 'help')) {
      t.equal(parse(['help', word]).kind, 'help', word);
    }
  },
);

const page = manPage(REGISTRY, { version: '1.2.3', date: '2026-01-02' });

t.test('it has every command and flag', async (t) => {
  const commands = [...REGISTRY.sources, ...REGISTRY.sinks, ...REGISTRY.others];
  for (const { word, flags } of commands) {
    t.ok(page.includes(`.B ${word.replaceAll('-', '\\-')}`), word);
    for (const name of Object.keys({ ...flags, ...GLOBAL_FLAGS })) {
      t.ok(page.includes(`\\fB\\-\\-${name.replaceAll('-', '\\-')}\\fR`), `--${name}`);
    }
  }
  t.match(page, /^\.TH KPNG\\-USERSPACE 1 "2026-01-02" "kpng\\-userspace 1\.2\.3"/);
});

t.test('each line is a man(7) request, or text', async (t) => {
  const known = new Set(['TH', 'SH', 'TP', 'IP', 'B', 'BR', 'nf', 'fi']);
  for (const line of page.split('\n')) {
    const request = /^[.'](\w*)/.exec(line)?.[1];
    if (request !== undefined) t.ok(known.has(request), line);
    t.notMatch(line, /[^\x20-\x7e]/, 'plain characters only');
  }
});
