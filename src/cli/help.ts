import { type CommandText, PROGRAM } from './command.ts';
import { GLOBAL_FLAGS } from './flags/global.ts';
import { splitLine } from './flags/read.ts';
import { defaultText, type FlagSpec, type FlagTable, isSwitch, prose } from './flags/table.ts';
import { ALL_FLAGS, guessTopic, sinksFor, type Topic } from './parse.ts';
import { REGISTRY } from './registry.ts';

const WIDTH = 100;

/** A part of a help text: a paragraph, then verbatim lines, then two columns. */
export interface HelpSection {
  readonly heading?: string;
  readonly text?: string;
  readonly lines?: readonly string[];
  readonly rows?: readonly (readonly [string, string])[];
}

export const ABOUT = 'a userspace TCP and UDP load balancer for Kubernetes Services';

/** The help text for a whole or partial command. Ends with a line feed. */
export function helpText(topic: Topic): string {
  return `${helpSections(topic).map(sectionText).join('\n\n')}\n`;
}

/** The same, before layout. */
export function helpSections({ source, sink, other }: Topic): HelpSection[] {
  if (other !== undefined) {
    const { word, forms = ['[flags]'] } = other;
    return commandHelp({ ...other, forms: forms.map((form) => `${word} ${form}`) });
  }
  if (source === undefined) return rootHelp();
  if (sink === undefined) {
    const forms = sinksFor(source).map(({ word }) => `${source.word} ${word} [flags]`);
    const text = `${PROGRAM} help ${source.word} <backend> lists the flags of a backend as well.`;
    return [...commandHelp({ ...source, forms }), { text }];
  }
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
    { text: `${PROGRAM} ${command.word}: ${command.summary}.` },
    { heading: 'Usage', lines: command.forms.map((form) => `${PROGRAM} ${form}`) },
    ...command.description.map((text) => ({ text })),
    examplesSection(command.examples),
    ...flagSections(command.flags),
  ];
}

function rootHelp(): HelpSection[] {
  const { sources, sinks, others } = REGISTRY;
  const running = others.filter(({ forRunningProxy }) => forRunningProxy);
  const rest = rowsOf(others.filter((each) => !running.includes(each)));
  return [
    { text: `${PROGRAM}: ${ABOUT}.` },
    {
      heading: 'Usage',
      lines: [
        `${PROGRAM} [global flags] <source> [flags] [to-local] <backend> [flags]`,
        `${PROGRAM} <command> [flags]`,
      ],
    },
    {
      text: prose`
        A command line names where the state of the Services comes from and what is done with it. Flags may
        stand anywhere after the program’s name: --flag value, --flag=value or, as in Go, -flag=value. The
        environment (KPNG_MAX_CONNECTIONS for --max-connections) and then the file of --config supply what the
        command line leaves out.`,
    },
    { heading: 'Sources', rows: rowsOf(sources) },
    { heading: 'Backends', rows: rowsOf(sinks) },
    { heading: 'A running proxy', rows: rowsOf(running) },
    {
      heading: 'Other commands',
      rows: [...rest, ['help', 'Explain a command: help local to-userspace']],
    },
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

function rowsOf(commands: readonly CommandText[]) {
  return commands.map(({ word, summary }) => [word, summary] as const);
}

function examplesSection(examples: CommandText['examples']): HelpSection {
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
  const { placeholder } = kind;
  const letter = short === undefined ? '    ' : `-${short}, `;
  return `${letter}--${name}${isSwitch(kind) ? `[=${placeholder}]` : ` <${placeholder}>`}`;
}

/** The help of a flag with its other names and its default. */
export function flagHelp(spec: FlagSpec<unknown>): string {
  const aliases = (spec.aliases ?? []).map((alias) => `--${alias}`).join(', ');
  const standard = defaultText(spec);
  const parts = [
    spec.help,
    aliases && `Also ${aliases}.`,
    spec.env && `Environment: ${spec.env}.`,
    standard && `(default ${standard})`,
  ];
  return parts.filter(Boolean).join(' ');
}

function sectionText({ heading, text, lines = [], rows = [] }: HelpSection): string {
  return [
    ...(heading === undefined ? [] : [`${heading}:`]),
    ...(text === undefined ? [] : wrap(text, WIDTH)),
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
    const isWide = label.length > left;
    const head = isWide ? [`  ${label}`, indent + first] : [`  ${label.padEnd(left)}  ${first}`];
    return [...head, ...more.map((line) => indent + line)];
  });
}

/** Lines of at most `width` characters, but for words that are longer. */
function wrap(text: string, width: number): string[] {
  return text.match(new RegExp(`\\S.{0,${width - 1}}(?= |$)|\\S+`, 'g')) ?? [''];
}

type Candidate = readonly [value: string, summary?: string];

/**
 * Answers a script of assets/completion/: the candidates at the cursor, one per line, followed by a tab and a
 * description; the line `:files` stands for any file. The last argument is what is typed at the cursor, the others stand before it.
 */
export function answerQuery(args: readonly string[]): string {
  // PowerShell loses an empty argument, and passes quotes instead.
  const current = args.at(-1)?.replace(/^""$/, '') ?? '';
  const lines = candidatesFor(args.slice(0, -1), current)
    ?.filter(([value]) => value.startsWith(current))
    .map((candidate) => `${candidate.join('\t')}\n`);
  return lines?.join('') ?? ':files\n';
}

/** What may follow some arguments; undefined: any file. */
function candidatesFor(before: readonly string[], current: string) {
  const { words, flags: given } = splitLine(before, ALL_FLAGS);
  const open = given.at(-1);
  if (before.at(-1)?.startsWith('-') === true && open !== undefined && open.text === undefined) {
    return valuesOf(ALL_FLAGS[open.name]);
  }
  const named = words[0] === 'help' ? words.slice(1) : words;
  const topic = guessTopic(named);
  const flags = flagsOf(topic);
  const [prefix] = /^--?[^=]+=/.exec(current) ?? [];
  if (prefix !== undefined) {
    const { name = '' } = splitLine([current], ALL_FLAGS).flags[0] ?? {};
    return valuesOf(flags[name], prefix);
  }
  if (current.startsWith('-')) {
    const all = Object.entries(flags).map(([each, { help }]): Candidate => {
      return [`--${each}`, /^.*?[.:](?= |$)/.exec(help)?.[0].slice(0, -1) ?? help];
    });
    return [...all, ['--help', 'Explain the command']] satisfies Candidate[];
  }
  if (words.at(-1) === 'validate') return undefined;
  return topic === undefined ? [] : nextWords(named, topic);
}

function valuesOf(flag: FlagSpec<unknown> | undefined, prefix = ''): Candidate[] | undefined {
  if (flag === undefined) return [];
  const { placeholder, schema } = flag.kind;
  const choices = isSwitch(flag.kind) ? ['true', 'false'] : schema.enum;
  if (choices !== undefined) return choices.map((choice) => [prefix + choice]);
  return ['path', 'folder'].includes(placeholder) ? undefined : [];
}

/** Every flag of a line. */
function flagsOf({ source, sink, other }: Topic = {}): FlagTable {
  if (other !== undefined && other.readsSettings !== true) return other.flags;
  return { ...GLOBAL_FLAGS, ...(other ?? source)?.flags, ...sink?.flags };
}

function nextWords(words: readonly string[], topic: Topic): readonly Candidate[] {
  const { source, sink, other, operands = [] } = topic;
  const { sources, others } = REGISTRY;
  if (other !== undefined) {
    const firsts = (other.forms ?? []).flatMap((form) => form.split(' ')[0]?.split('|') ?? []);
    return operands.length > 0
      ? []
      : firsts.filter((word) => /^[a-z]/.test(word)).map((word) => [word]);
  }
  if (source === undefined) {
    return [...rowsOf([...sources, ...others]), ['help', 'Explain a command']];
  }
  if (sink !== undefined) return [];
  const fitting = sinksFor(source);
  if (words.includes('to-local')) return rowsOf(fitting.filter(({ scope }) => scope === 'local'));
  return [['to-local', 'What this node needs of the state'], ...rowsOf(fitting)];
}
