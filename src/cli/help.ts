import { ADMIN_COMMANDS, type AdminCommand } from './admin/commands.ts';
import type { Example, SinkCommand, SourceCommand } from './command.ts';
import { CLEANUP_FLAGS } from './flags/cleanup.ts';
import { GLOBAL_FLAGS } from './flags/global.ts';
import { defaultText, type FlagSpec, type FlagTable } from './flags/table.ts';
import { commandWords, type Words } from './grammar.ts';
import type { Registry } from './registry.ts';

export const PROGRAM = 'kpng-userspace';
const WIDTH = 100;

/** The help text for as much of a command as has been named. Ends with a line feed. */
export function helpText(topic: Words, registry: Registry): string {
  if (topic.kind === 'source') return sourceHelp(topic.source, registry);
  if (topic.kind === 'command') return commandHelp(topic.source, topic.sink);
  if (topic.kind === 'cleanup') return CLEANUP_HELP;
  if (topic.kind === 'config') return CONFIG_HELP;
  if (topic.kind === 'admin') return adminHelp(topic.command);
  return topic.kind === 'version' ? VERSION_HELP : rootHelp(registry);
}

const VERSION_HELP = sections([
  [`${PROGRAM} version: print the version of the program and of Node.`],
  ['Usage:', `  ${PROGRAM} version`],
]);

const CLEANUP_HELP = sections([
  [`${PROGRAM} cleanup: remove the packet rules and addresses that a proxy has left.`],
  ['Usage:', `  ${PROGRAM} cleanup [flags]`],
  wrap(
    'Rules and addresses outlive the proxy on purpose, so that a restart finds them in place. This ' +
      'removes the one table that the rules are in, the addresses that were added to interfaces, and the ' +
      'interfaces made for them; nothing else. It may be done twice. A proxy that still runs puts ' +
      'everything back.',
  ),
  examples([{ line: 'cleanup', does: 'removes the rules of a proxy that has ended' }]),
  ...flagSections(CLEANUP_FLAGS),
]);

const CONFIG_HELP = sections([
  [`${PROGRAM} config: look into configuration files.`],
  [
    'Usage:',
    `  ${PROGRAM} config validate FILE`,
    `  ${PROGRAM} config print [--output table|json|yaml] [<source> [to-local] <backend>] [flags]`,
  ],
  wrap(
    'validate says everything that is wrong with a file, and what of it has no effect. print tells ' +
      'what a command line, the environment and the file of --config come to, and where each value ' +
      'comes from; as yaml it is a file that sets the same. Without words, the command of the file is ' +
      'meant.',
  ),
  examples([
    { line: 'config validate config.yaml', does: 'finds the errors of a file' },
    {
      line: 'config print --config config.yaml --output yaml',
      does: 'shows what the command of a file is set to',
    },
  ]),
]);

function adminHelp({
  word,
  operand,
  summary,
  description,
  examples: list,
  flags,
}: AdminCommand): string {
  const usage = [PROGRAM, word, operand, '[flags]'].filter((part) => part !== undefined).join(' ');
  return sections([
    [`${PROGRAM} ${word}: ${summary}.`],
    ['Usage:', `  ${usage}`],
    wrap(description),
    examples(list),
    ...flagSections(flags),
  ]);
}

function rootHelp(registry: Registry): string {
  return sections([
    [`${PROGRAM}: a userspace TCP and UDP load balancer for Kubernetes Services.`],
    ['Usage:', `  ${PROGRAM} [global flags] <source> [flags] [to-local] <backend> [flags]`],
    wrap(
      'A command line names where the state of the Services comes from and what is done with it. ' +
        'Flags may stand anywhere after the program’s name, as --flag value, --flag=value or, as in ' +
        'Go, -flag=value. What is not given comes from the environment (--max-connections from ' +
        'KPNG_MAX_CONNECTIONS), and then from the file of --config.',
    ),
    ['Sources:', ...columns(registry.sources.map(({ word, summary }) => [word, summary]))],
    ['Backends:', ...columns(registry.sinks.map(({ word, summary }) => [word, summary]))],
    ['A running proxy:', ...columns(ADMIN_COMMANDS.map(({ word, summary }) => [word, summary]))],
    [
      'Other commands:',
      ...columns([
        ['cleanup', 'Remove the packet rules and addresses that a proxy has left'],
        ['service', 'Install, start, stop and remove it as a service of Windows'],
        ['config', 'Check a configuration file, or print what everything is set to'],
        ['completion', 'Print a script that completes command lines: bash, zsh, fish, powershell'],
        ['version', 'Print the version'],
        ['help', `Explain a command: ${PROGRAM} help local to-userspace`],
      ]),
    ],
    examples([...registry.sources, ...registry.sinks].flatMap(({ examples }) => examples)),
    ...flagSections(GLOBAL_FLAGS),
    [
      'Exit codes:',
      ...columns([
        ['0', 'Ended as asked'],
        ['1', 'Failed while running'],
        ['2', 'A flag, a word or a configuration file is wrong'],
      ]),
    ],
  ]);
}

function sourceHelp(source: SourceCommand, registry: Registry): string {
  return sections([
    [`${PROGRAM} ${source.word}: ${source.summary}.`],
    [
      'Usage:',
      ...registry.sinks
        .filter((sink) => source.scope === 'global' || sink.scope === 'local')
        .map((sink) => `  ${PROGRAM} ${commandWords(source, sink)} [flags]`),
    ],
    ...source.description.map((paragraph) => wrap(paragraph)),
    examples(source.examples),
    ...flagSections(source.flags),
    [`${PROGRAM} help ${source.word} <backend> lists the flags of a backend as well.`],
  ]);
}

function commandHelp(source: SourceCommand, sink: SinkCommand): string {
  return sections([
    [`${PROGRAM} ${commandWords(source, sink)}: ${sink.summary}.`],
    ['Usage:', `  ${PROGRAM} ${commandWords(source, sink)} [flags]`],
    wrap(`Source: ${source.summary}.`),
    ...sink.description.map((paragraph) => wrap(paragraph)),
    examples(examplesOf(source, sink)),
    ...flagSections({ ...source.flags, ...sink.flags, ...GLOBAL_FLAGS }),
  ]);
}

/** The examples of this very command line; else those of the backend, which show its flags. */
function examplesOf(source: SourceCommand, sink: SinkCommand): readonly Example[] {
  const same = [...source.examples, ...sink.examples].filter(({ line }) => {
    const words = line.split(' ');
    return words[0] === source.word && words.includes(sink.word);
  });
  return same.length > 0 ? same : sink.examples;
}

function examples(list: readonly Example[]): string[] {
  const lines = list.flatMap(({ line, does }) => [`  # ${does}`, `  ${PROGRAM} ${line}`]);
  return ['Examples:', ...lines];
}

/** One section for each group of flags, in the order in which the groups come up. */
export function flagSections(table: FlagTable): string[][] {
  const groups = new Map<string, [string, string][]>();
  for (const [name, spec] of Object.entries(table)) {
    const rows = groups.get(spec.group) ?? [];
    rows.push([flagLabel(name, spec), flagHelp(spec)]);
    groups.set(spec.group, rows);
  }
  return [...groups].map(([group, rows]) => [`${group}:`].concat(columns(rows, 30)));
}

function flagLabel(name: string, spec: FlagSpec<unknown>): string {
  const short = spec.short === undefined ? '    ' : `-${spec.short}, `;
  const { bare, placeholder } = spec.kind;
  return `${short}--${name}${bare === undefined ? ` <${placeholder}>` : `[=${placeholder}]`}`;
}

function flagHelp(spec: FlagSpec<unknown>): string {
  const aliases = (spec.aliases ?? []).map((alias) => `--${alias}`).join(', ');
  const extra = [
    aliases === '' ? undefined : `Also ${aliases}.`,
    spec.env === undefined ? undefined : `Environment: ${spec.env}.`,
  ].filter((part) => part !== undefined);
  const standard = defaultText(spec);
  const ending = standard === undefined ? [] : [`(default ${standard})`];
  return [spec.help, ...extra, ...ending].join(' ');
}

/** Two columns; a left side that is too wide has a line of its own. */
function columns(rows: readonly (readonly [string, string])[], widest = 18): string[] {
  const left = Math.min(widest, Math.max(...rows.map(([label]) => label.length)));
  const indent = ' '.repeat(left + 4);
  return rows.flatMap(([label, text]) => {
    const [first = '', ...more] = wrap(text, WIDTH - indent.length);
    const rest = more.map((line) => indent + line);
    return label.length > left
      ? [`  ${label}`, indent + first, ...rest]
      : [`  ${label.padEnd(left)}  ${first}`, ...rest];
  });
}

function wrap(text: string, width = WIDTH): string[] {
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

function sections(parts: readonly (readonly string[])[]): string {
  return `${parts.map((lines) => lines.join('\n')).join('\n\n')}\n`;
}
