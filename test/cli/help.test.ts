import t from 'tap';
import { defineSink, defineSource, type Registry } from '../../src/cli/command.ts';
import { choice, duration, list, text } from '../../src/cli/flags/kinds.ts';
import { flag, group } from '../../src/cli/flags/table.ts';
import { helpText } from '../../src/cli/help.ts';

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

t.test('the root lists what there is', (t) => {
  const help = helpText({ kind: 'nothing' }, registry);
  t.match(help, /\nSources:\n {2}well {2}Water from below\n/);
  t.match(help, /\nBackends:\n {2}to-cup {2}Drink it\n/);
  t.match(help, /\nExamples:\n {2}# fills a cup\n {2}kpng-userspace well to-cup\n/);
  t.match(help, /\nExit codes:\n {2}0 {2}Ended as asked\n/);
  t.match(help, /--metrics-bind-address/);
  t.end();
});

t.test('a source shows how to continue', (t) => {
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
