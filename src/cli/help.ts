import { PROGRAM, type CommandText, type Examples } from './command.ts';
import { GLOBAL_FLAGS } from './flags/global.ts';
import { defaultText, type FlagSpec, type FlagTable } from './flags/table.ts';
import { REGISTRY } from './registry.ts';
import { fits, type Topic } from './topic.ts';

const WIDTH = 100;

/** A part of a help text: paragraphs, then verbatim lines, then two columns. */
export interface HelpSection {
  readonly heading?: string;
  readonly paragraphs?: readonly string[];
  readonly lines?: readonly string[];
  readonly rows?: readonly (readonly [string, string])[];
}

export const ABOUT = 'a userspace TCP and UDP load balancer for Kubernetes Services';

/** The help text for a whole or partial command. Ends with a line feed. */
export function helpText(topic: Topic): string {
  return `${helpSections(topic).map(sectionText).join('\n\n')}\n`;
}

/** The same, before layout. */
export function helpSections(topic: Topic): HelpSection[] {
  if (topic.kind === 'nothing') return rootHelp();
  if (topic.kind === 'other') {
    const { command } = topic;
    const { word, forms = ['[flags]'] } = command;
    return commandHelp({ ...command, forms: forms.map((form) => `${word} ${form}`) });
  }
  const { source } = topic;
  if (topic.kind === 'source') {
    const sinks = REGISTRY.sinks.filter((sink) => fits(source, sink));
    const forms = sinks.map(({ word }) => `${source.word} ${word} [flags]`);
    const more = `${PROGRAM} help ${source.word} <backend> lists the flags of a backend as well.`;
    return [...commandHelp({ ...source, forms }), { paragraphs: [more] }];
  }
  const { sink } = topic;
  const word = `${source.word} ${sink.word}`;
  // The examples of this very command line, or else those of the backend, which show its flags.
  const same = Object.entries({ ...source.examples, ...sink.examples }).filter(
    ([line]) => line.startsWith(`${source.word} `) && line.split(' ').includes(sink.word),
  );
  return commandHelp({
    ...sink,
    word,
    forms: [`${word} [flags]`],
    description: [`Source: ${source.summary}.`, ...sink.description],
    examples: same.length > 0 ? Object.fromEntries(same) : sink.examples,
    flags: { ...source.flags, ...sink.flags, ...GLOBAL_FLAGS },
  });
}

function commandHelp(command: CommandText & { readonly forms: readonly string[] }): HelpSection[] {
  return [
    { paragraphs: [`${PROGRAM} ${command.word}: ${command.summary}.`] },
    { heading: 'Usage', lines: command.forms.map((form) => `${PROGRAM} ${form}`) },
    ...command.description.map((paragraph) => ({ paragraphs: [paragraph] })),
    examplesSection(command.examples),
    ...flagSections(command.flags),
  ];
}

function rootHelp(): HelpSection[] {
  const { sources, sinks, others } = REGISTRY;
  const list = (
    heading: string,
    commands: readonly Pick<CommandText, 'word' | 'summary'>[],
  ): HelpSection => ({ heading, rows: commands.map(({ word, summary }) => [word, summary]) });
  const help = { word: 'help', summary: 'Explain a command: help local to-userspace' };
  return [
    { paragraphs: [`${PROGRAM}: ${ABOUT}.`] },
    {
      heading: 'Usage',
      lines: [
        `${PROGRAM} [global flags] <source> [flags] [to-local] <backend> [flags]`,
        `${PROGRAM} <command> [flags]`,
      ],
    },
    {
      paragraphs: [
        'A command line names where the state of the Services comes from and what is done with it. ' +
          'Flags may stand anywhere after the program’s name: --flag value, --flag=value or, as in ' +
          'Go, -flag=value. The environment (KPNG_MAX_CONNECTIONS for --max-connections) and then the file of ' +
          '--config supply what the command line leaves out.',
      ],
    },
    list('Sources', sources),
    list('Backends', sinks),
    list(
      'A running proxy',
      others.filter(({ forRunningProxy }) => forRunningProxy),
    ),
    list('Other commands', [...others.filter(({ forRunningProxy }) => !forRunningProxy), help]),
    examplesSection(Object.assign({}, ...[...sources, ...sinks].map(({ examples }) => examples))),
    ...flagSections(GLOBAL_FLAGS),
    {
      heading: 'Exit codes',
      rows: [
        ['0', 'Ended as asked'],
        ['1', 'Failed while running'],
        ['2', 'A flag, a word or a configuration file is wrong'],
      ],
    },
  ];
}

function examplesSection(examples: Examples): HelpSection {
  const lines = Object.entries(examples).flatMap(([line, does]) => [
    `# ${does}`,
    `${PROGRAM} ${line}`,
  ]);
  return { heading: 'Examples', lines };
}

/** One section for each group of flags, in order of appearance. */
function flagSections(table: FlagTable): HelpSection[] {
  const groups = Map.groupBy(Object.entries(table), ([, { group }]) => group);
  return [...groups].map(([heading, flags]) => ({
    heading,
    rows: flags.map(([name, spec]) => [flagLabel(name, spec), flagHelp(spec)] as const),
  }));
}

function flagLabel(name: string, { kind, short }: FlagSpec<unknown>): string {
  const { bare, placeholder } = kind;
  const letter = short === undefined ? '    ' : `-${short}, `;
  return `${letter}--${name}${bare === undefined ? ` <${placeholder}>` : `[=${placeholder}]`}`;
}

/** The help of a flag with its other names and its default. */
export function flagHelp(spec: FlagSpec<unknown>): string {
  const aliases = (spec.aliases ?? []).map((alias) => `--${alias}`).join(', ');
  const standard = defaultText(spec);
  return [
    spec.help,
    aliases === '' ? '' : `Also ${aliases}.`,
    spec.env === undefined ? '' : `Environment: ${spec.env}.`,
    standard === undefined ? '' : `(default ${standard})`,
  ]
    .filter((part) => part !== '')
    .join(' ');
}

function sectionText({ heading, paragraphs = [], lines = [], rows = [] }: HelpSection): string {
  return [
    ...(heading === undefined ? [] : [`${heading}:`]),
    ...paragraphs.flatMap((paragraph) => wrap(paragraph, WIDTH)),
    ...lines.map((line) => `  ${line}`),
    ...columns(rows),
  ].join('\n');
}

/** Two columns; a left side that is too wide gets its own line. */
function columns(rows: readonly (readonly [string, string])[]): string[] {
  const left = Math.min(30, Math.max(0, ...rows.map(([label]) => label.length)));
  const indent = ' '.repeat(left + 4);
  return rows.flatMap(([label, text]) => {
    const [first = '', ...more] = wrap(text, WIDTH - indent.length);
    const rest = more.map((line) => indent + line);
    return label.length > left
      ? [`  ${label}`, indent + first, ...rest]
      : [`  ${label.padEnd(left)}  ${first}`, ...rest];
  });
}

function wrap(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    if (line !== '' && line.length + 1 + word.length > width) {
      lines.push(line);
      line = word;
    } else {
      line = line === '' ? word : `${line} ${word}`;
    }
  }
  return [...lines, line];
}
