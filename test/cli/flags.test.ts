import { manPage } from '../../tools/release/man-page.ts';
import t from 'tap';
import { defineSink, defineSource, type Registry } from '../../src/cli/command.ts';
import { answerQuery } from '../../src/cli/completion/query.ts';
import { SCRIPTS, SHELLS } from '../../src/cli/completion/scripts.ts';
import { GLOBAL_FLAGS } from '../../src/cli/flags/global.ts';
import { choice, duration, list, text } from '../../src/cli/flags/kinds.ts';
import { LIMIT_FLAGS, readLimits } from '../../src/cli/flags/limits.ts';
import { defaultText, pickValues, type FlagTable, flag, group } from '../../src/cli/flags/table.ts';
import { helpText } from '../../src/cli/help.ts';
import { parse } from '../../src/cli/parse.ts';
import { REGISTRY } from '../../src/cli/registry.ts';
import { DEFAULT_LIMITS, LIMIT_NAMES } from '../../src/proxysocket/limits.ts';
import { runHere } from '../support/cli.ts';

const TABLES: [string, FlagTable][] = [
  ['global', GLOBAL_FLAGS],
  ...[...REGISTRY.sources, ...REGISTRY.sinks].map(({ word, flags }): [string, FlagTable] => [
    word,
    flags,
  ]),
];

t.test('flag names are what users of kube-proxy expect', (t) => {
  for (const [word, table] of TABLES) {
    for (const name of Object.keys(table)) {
      t.match(name, /^[a-z]+\d?(-[a-z]+)*$/, `${word} --${name}`);
      t.notMatch(name, /^no-/, 'commander would take it for a negation');
    }
  }
  t.end();
});

t.test('no name means two things on one command line', (t) => {
  const namesOf = (table: FlagTable): string[] =>
    Object.entries(table).flatMap(([name, { aliases = [] }]) => [name].concat(aliases));
  for (const source of REGISTRY.sources) {
    for (const sink of REGISTRY.sinks) {
      const names = [GLOBAL_FLAGS, source.flags, sink.flags].flatMap(namesOf);
      t.equal(new Set(names).size, names.length, `${source.word} ${sink.word}`);
    }
  }
  t.end();
});

t.test(
  'a name means the same to every command, as words and values are distinguished by it',
  (t) => {
    const seen = new Map<string, string>();
    for (const [word, table] of TABLES) {
      for (const [name, { kind, short, aliases }] of Object.entries(table)) {
        const meaning = JSON.stringify([kind.placeholder, short, aliases]);
        t.equal(seen.get(name) ?? meaning, meaning, `${word} --${name}`);
        seen.set(name, meaning);
      }
    }
    t.end();
  },
);

t.test('every default is a valid value, and is shown', (t) => {
  for (const [word, table] of TABLES) {
    for (const [name, spec] of Object.entries(table)) {
      if (spec.default === undefined) continue;
      const label = `${word} --${name}`;
      t.same(spec.kind.parse(spec.kind.format(spec.default)), spec.default, label);
      t.ok(defaultText(spec) !== undefined || spec.kind.format(spec.default) === '', label);
    }
  }
  t.end();
});

t.test('every flag is explained in whole sentences', (t) => {
  for (const [word, table] of TABLES) {
    for (const [name, { help, group }] of Object.entries(table)) {
      t.match(help, /^[A-Za-z].*\.$/s, `${word} --${name}`);
      t.not(group, '', `${word} --${name}`);
    }
  }
  t.end();
});

t.test('every limit of the data path has a flag of its public name', (t) => {
  t.same(Object.keys(LIMIT_NAMES).sort(), Object.keys(DEFAULT_LIMITS).sort());
  t.same(Object.values(LIMIT_NAMES).sort(), Object.keys(LIMIT_FLAGS).sort());
  const defaults = pickValues(LIMIT_FLAGS, new Map());
  t.same(readLimits(defaults), DEFAULT_LIMITS);
  t.end();
});

const FLAGS = {
  ...group('Names', {
    name: flag(text('name'), '', 'What it is called.', {
      short: 'n',
      aliases: ['called', 'title'],
    }),
    wait: flag(duration(), 1500, 'How long.'),
  }),
  ...group('Others', {
    'very-long-name-of-a-flag': flag(list('words'), ['a', 'b'], `A ${'long '.repeat(30)}story.`, {
      env: 'LONG_NAME',
    }),
    mode: flag<'x' | 'y' | undefined>(choice(['x', 'y']), undefined, 'How.', {
      defaultText: 'x at night',
    }),
  }),
};

const source = defineSource({
  word: 'well',
  summary: 'Water from below',
  description: ['One paragraph.', 'Another one.'],
  examples: [{ line: 'well to-cup', does: 'fills a cup' }],
  flags: FLAGS,
  read: (values) => values,
  start: () => Promise.reject(new Error('not here')),
});
const sink = defineSink({
  word: 'to-cup',
  summary: 'Drink it',
  description: [],
  examples: [],
  flags: {},
  read: () => ({ nodeName: 'n' }),
  start: () => Promise.reject(new Error('not here')),
});
const registry: Registry = { sources: [source], sinks: [sink], others: [], hints: {} };

t.test('the root lists all commands', (t) => {
  const help = helpText({ kind: 'nothing' }, registry);
  t.match(help, /\nSources:\n {2}well {2}Water from below\n/);
  t.match(help, /\nBackends:\n {2}to-cup {2}Drink it\n/);
  t.match(help, /\nExamples:\n {2}# fills a cup\n {2}kpng-userspace well to-cup\n/);
  t.match(help, /\nExit codes:\n {2}0 {2}Ended as asked\n/);
  t.match(help, /--metrics-bind-address/);
  t.end();
});

t.test('the help of a source shows its sinks', (t) => {
  const help = helpText({ kind: 'source', source }, registry);
  t.match(help, /^kpng-userspace well: Water from below\.\n/);
  t.match(help, /\nUsage:\n {2}kpng-userspace well to-cup \[flags\]\n/);
  t.match(help, /\n\nOne paragraph\.\n\nAnother one\.\n\n/);
  t.end();
});

t.test('a command shows its flags in groups, aligned, and the examples that fit', (t) => {
  const help = helpText({ kind: 'command', source, sink }, registry);
  t.match(help, /^kpng-userspace well to-cup: Drink it\.\n/);
  t.match(help, /# fills a cup/);
  t.match(help, /--drain-timeout/);
  t.match(
    help,
    /\nNames:\n {2}-n, --name <name> +What it is called\. Also --called, --title\.\n {6}--wait/,
  );
  t.match(help, /--wait <duration> +How long\. \(default 1\.5s\)\n/);
  t.match(help, /--mode <x\|y> +How\. \(default x at night\)\n/);
  const long = /\n {6}--very-long-name-of-a-flag <words>\n((?: {30,}.*\n)+)/.exec(help)?.[1] ?? '';
  t.match(long.replaceAll(/\s+/g, ' '), /story\. Environment: LONG_NAME\. \(default a,b\)/);
  t.equal(new Set(long.match(/^ +/gm)).size, 1, 'one indent');
  for (const line of help.split('\n')) t.ok(line.length <= 100, line);
  t.end();
});

/** The candidates for a line with the cursor at its end. */
function at(line: string): string[] {
  return answerQuery(line.split(' '), REGISTRY)
    .split('\n')
    .slice(0, -1)
    .map((answer) => answer.replace(/\t.*/, ''));
}

t.test('the command prints the script of a shell, which asks the program', async (t) => {
  for (const shell of SHELLS) {
    t.match(await runHere('completion', shell), { code: 0, stdout: SCRIPTS[shell], stderr: '' });
    t.match(SCRIPTS[shell], /completion query/);
  }
  t.match(await runHere('completion', 'csh'), { code: 2, stderr: /expected one of bash, zsh/ });
  const answer = await runHere('completion', 'query', 'kube', '--drain-t');
  t.match(answer, { code: 0, stdout: /^--drain-timeout\t\w.*\n$/ });
});

t.test('words: sources and commands first, then the sinks of each', async (t) => {
  t.ok(['kube', 'file', 'status', 'cleanup', 'completion'].every((word) => at('').includes(word)));
  t.same(at('ku'), ['kube']);
  t.same(at('kube to-l'), ['to-local']);
  t.ok(at('kube ').includes('to-api') && at('kube ').includes('to-userspace'));
  t.ok(at('kube to-local ').includes('to-userspace') && !at('kube to-local ').includes('to-api'));
  t.ok(at('local ').includes('to-userspace') && !at('local ').includes('to-file'));
  t.same(at('local to-json '), []);
  t.same(at('help ku'), ['kube']);
  t.same(at('completion '), ['bash', 'zsh', 'fish', 'powershell']);
  t.same(at('config '), ['validate', 'print']);
  t.same(at('cleanup '), []);
});

t.test('flags: those of the words on the line, wherever they stand', async (t) => {
  t.same(at('file to-local to-userspace --handover-s'), ['--handover-socket']);
  t.same(at('file to-local to-json --handover-s'), []);
  t.same(at('-v=4 file --inp'), ['--input']);
  t.same(at('--inp'), [], 'no source yet');
  t.ok(at('cleanup --').includes('--kube-proxy-userspace'));
  t.ok(at('kube --').includes('--help'));
});

t.test('values: choices, on and off, files, and nothing where anything may stand', async (t) => {
  t.same(at('local to-userspace --portal nf'), ['nftables']);
  t.same(at('local to-userspace --portal=ad'), ['--portal=address']);
  t.same(at('local to-userspace -portal=ad'), ['-portal=address']);
  t.same(at('local to-userspace --dry-run='), ['--dry-run=true', '--dry-run=false']);
  t.same(at('local to-userspace --dry-run '), [], 'a flag that is on or off takes no word');
  for (const line of [
    'file --input ',
    'file -i ',
    'file --input=st',
    'config validate ',
    'validate ',
  ]) {
    t.same(at(line), [':files'], line);
  }
  t.same(at('local --api '), []);
  t.same(at('local --nonsense='), []);
  t.ok(at('file --input state.yaml ').includes('to-local'), 'the value is no word');
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
