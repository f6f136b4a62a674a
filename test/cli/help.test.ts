import t from 'tap';
import { defineSink, defineSource } from '../../src/cli/command.ts';
import { choice, duration, list, text } from '../../src/cli/flags/kinds.ts';
import { flag, type FlagTable } from '../../src/cli/flags/table.ts';
import { flagSections, helpText } from '../../src/cli/help.ts';
import { versionText } from '../../src/cli/version.ts';
import type { Registry } from '../../src/cli/registry.ts';

const FLAGS = {
  name: flag<string>({
    kind: text('name'),
    default: '',
    help: 'What it is called.',
    group: 'Names',
    short: 'n',
    aliases: ['called', 'title'],
  }),
  'very-long-name-of-a-flag': flag<readonly string[]>({
    kind: list('words'),
    default: ['a', 'b'],
    help: `A ${'long '.repeat(30)}story.`,
    group: 'Others',
    env: 'LONG_NAME',
  }),
  wait: flag<number>({ kind: duration(), default: 1500, help: 'How long.', group: 'Names' }),
  mode: flag<'x' | 'y' | undefined>({
    kind: choice(['x', 'y']),
    default: undefined,
    help: 'How.',
    group: 'Others',
    defaultText: 'x at night',
  }),
} satisfies FlagTable;

const common = { description: ['One paragraph.', 'Another one.'], toLocalOptional: false };

const registry: Registry = {
  sources: [
    defineSource({
      ...common,
      word: 'well',
      summary: 'Water from below',
      examples: [{ line: 'well to-local to-cup', does: 'fills a cup' }],
      flags: FLAGS,
      read: (values) => values,
      start: () => Promise.reject(new Error('not here')),
    }),
  ],
  sinks: [
    defineSink({
      ...common,
      word: 'to-cup',
      summary: 'Drink it',
      examples: [],
      servesByDefault: false,
      flags: {},
      read: () => ({ nodeName: 'n' }),
      start: () => Promise.reject(new Error('not here')),
    }),
  ],
  planned: [],
  foreign: [],
};

t.test('flags stand in groups, each with its value, names and default', (t) => {
  const [names = [], others = []] = flagSections(FLAGS);
  t.equal(names[0], 'Names:');
  t.match(names[1], /^ {2}-n, --name <name> +What it is called\. Also --called, --title\.$/);
  t.match(names[2], /^ {6}--wait <duration> +How long\. \(default 1\.5s\)$/);
  t.equal(others[0], 'Others:');
  t.equal(others[1], '      --very-long-name-of-a-flag <words>', 'too long: on a line of its own');
  t.match(others.join(' '), /story\. Environment: LONG_NAME\. +\(default a,b\)/);
  t.match(others.at(-1), /--mode <x\|y> +How\. \(default x at night\)/);
  t.end();
});

t.test('no line of the flags is wider than 100 columns, and the text is aligned', (t) => {
  for (const line of flagSections(FLAGS).flat()) t.ok(line.length <= 100, line);
  const [, others = []] = flagSections(FLAGS);
  const indents = new Set(others.slice(2, -1).map((line) => /^ */.exec(line)?.[0].length));
  t.equal(indents.size, 1);
  t.end();
});

t.test('the root lists what there is', (t) => {
  const help = helpText({ kind: 'nothing' }, registry);
  t.match(help, /\nSources:\n {2}well {2}Water from below\n/);
  t.match(help, /\nBackends:\n {2}to-cup {2}Drink it\n/);
  t.match(help, /\nExamples:\n {2}# fills a cup\n {2}kpng-userspace well to-local to-cup\n/);
  t.match(help, /\nExit codes:\n {2}0 {2}Ended as asked\n/);
  t.match(help, /--metrics-bind-address/);
  t.end();
});

t.test('a source shows how to go on', (t) => {
  const [source] = registry.sources;
  if (source === undefined) throw new Error('there is one');
  const help = helpText({ kind: 'source', source, toLocal: false }, registry);
  t.match(help, /^kpng-userspace well: Water from below\.\n/);
  t.match(help, /\nUsage:\n {2}kpng-userspace well to-local to-cup \[flags\]\n/);
  t.match(help, /\n\nOne paragraph\.\n\nAnother one\.\n\n/);
  t.end();
});

t.test('a command shows all of its flags and the examples that fit', (t) => {
  const [[source], [sink]] = [registry.sources, registry.sinks];
  if (source === undefined || sink === undefined) throw new Error('there is one of each');
  const help = helpText({ kind: 'command', source, sink }, registry);
  t.match(help, /^kpng-userspace well to-local to-cup: Drink it\.\n/);
  t.match(help, /--very-long-name-of-a-flag/);
  t.match(help, /--drain-timeout/);
  t.match(help, /# fills a cup/);
  t.end();
});

t.test('the version is that of package.json', async (t) => {
  const { default: json } = (await import('../../package.json', { with: { type: 'json' } })) as {
    default: { version: string };
  };
  t.match(versionText().split('\n'), [
    `kpng-userspace: ${json.version}`,
    `node: ${process.versions.node}`,
  ]);
  t.end();
});
