import type { ConfigFile, ConfigProblem } from '../config/file.ts';
import { closest } from '../util/suggest.ts';
import type { BoundCommand, OtherCommand, SinkCommand, SourceCommand } from './command.ts';
import { checkObserve, GLOBAL_FLAGS } from './flags/global.ts';
import { FOREIGN_FLAGS, misspeltVariables, readFlags, splitLine } from './flags/read.ts';
import type { GivenFlag } from './flags/read.ts';
import { type FlagSpec, type FlagTable, variableOf, atMost, usage } from './flags/table.ts';
import { hintFor, REGISTRY } from './registry.ts';

const { sources, sinks, others } = REGISTRY;
const COMMANDS = [...sources, ...sinks, ...others];
const TABLES = COMMANDS.map(({ flags }) => flags);

/** The flags of all commands, to distinguish values from words before the command is known. */
export const ALL_FLAGS: FlagTable = Object.assign({}, ...TABLES, GLOBAL_FLAGS);

/** The path of the configuration file that a command line or the environment names; empty: none. */
export function configPathOf(argv: readonly string[], env: NodeJS.ProcessEnv): string {
  const { words, flags, help } = splitLine(argv, ALL_FLAGS);
  const [first, second] = words;
  const other = others.find(({ word }) => word === first);
  // A file with errors must not prevent validating it.
  const needsNone = other !== undefined && (other.readsSettings !== true || second === 'validate');
  if (help || first === 'help' || needsNone) return '';
  const given = flags.findLast(({ name }) => name === 'config');
  return given?.text ?? env[variableOf('config')] ?? '';
}

/**
 * Parses a command line, without the program's name, together with the environment and a configuration file. Has no
 * side effects. Throws a usage error.
 */
export function parse(argv: readonly string[], env: NodeJS.ProcessEnv = {}, config?: ConfigFile) {
  const asked = argv.length === 1 && /^--?version$/.test(argv[0] ?? '') ? ['version'] : argv;
  const { words, rest, flags, help } = splitLine(asked, ALL_FLAGS);
  // An unknown flag is the first error, because its value looks like a word.
  for (const { name } of flags) {
    if (Object.hasOwn(ALL_FLAGS, name) || FOREIGN_FLAGS.has(name)) continue;
    const hint = suggestion(name, Object.keys(ALL_FLAGS), '--');
    throw usage(`unknown flag ${name.length === 1 ? '-' : '--'}${name}${hint}`);
  }
  const isHelp = words[0] === 'help';
  let topic: Topic;
  try {
    topic = readTopic([...(isHelp ? words.slice(1) : words), ...rest]);
  } catch (error) {
    // A flag with a missing value may have consumed a word.
    readFlags(flags, ALL_FLAGS);
    throw error;
  }
  if (help || isHelp) return { kind: 'help', topic } as const;
  const { other, operands = [] } = topic;
  if (other === undefined) return { kind: 'run', ...bindRun(topic, flags, env, config) } as const;
  const action = other.bind({
    operands,
    rest,
    flags,
    fields: configurableFlags,
    configPath: config?.path ?? '',
    read: (own) => {
      const table = { ...GLOBAL_FLAGS, ...own };
      ignoredFlags(flags, table);
      return readFlags(flags, table, other.readsSettings === true ? env : {}, config).values;
    },
    bindRun: (named, given) => bindRun(readTopic(named), given, env, config),
    parseRun: (line, file) => parseRun(line, {}, file),
  });
  return { kind: 'other', action } as const;
}

/** The same, for the command line of a source and a sink. */
export function parseRun(...given: Parameters<typeof parse>): BoundCommand {
  const invocation = parse(...given);
  if (invocation.kind === 'run') return invocation;
  throw usage(`${given[0].join(' ')} names no source and backend`);
}

type Flags = readonly GivenFlag[];

/** Binds a source and a sink, by default those of the configuration file, to their options. Throws a usage error. */
function bindRun(named: Topic, flags: Flags, env: NodeJS.ProcessEnv, config?: ConfigFile) {
  const topic = named.source === undefined ? readTopic(config?.command ?? []) : named;
  const { source, sink } = topic;
  if (source === undefined) throw usage('no source was named');
  if (sink === undefined) {
    const words = config?.command?.join(' ');
    if (named.source !== undefined) throw usage(`${source.word}: no backend was named`);
    throw usage(`the command of the configuration file, ${words}, is not complete`);
  }
  const table = { ...GLOBAL_FLAGS, ...source.flags, ...sink.flags };
  const ignored = ignoredFlags(flags, table);
  const { values, settings } = readFlags(flags, table, env, config);
  checkObserve(values);
  const command = topicWords(topic);
  const idle = [...(config?.settings.values() ?? [])]
    .filter(({ flag }) => !Object.hasOwn(table, flag))
    .map(({ field, line }): ConfigProblem => {
      return { line, column: 1, field, message: `has no effect on ${command.join(' ')}` };
    });
  return {
    source: source.bind(values),
    sink: sink.bind(values),
    globals: values,
    command,
    settings: settings.filter(({ flag }) => flag !== 'config'),
    warnings: [...(config?.warnings ?? []), ...idle],
    misspelt: misspeltVariables(env, Object.keys(ALL_FLAGS)),
    ignored,
  };
}

/** The given flags of kube-proxy and klog that have no effect. Throws for those of a command that is not named. */
function ignoredFlags(flags: Flags, table: FlagTable): BoundCommand['ignored'] {
  const others = flags.filter(({ name }) => !Object.hasOwn(table, name));
  // A forgotten mode is refused like a wrong one.
  for (const { name, text = 'true' } of others) {
    const foreign = FOREIGN_FLAGS.get(name);
    if (foreign === undefined) {
      const owners = COMMANDS.filter((each) => Object.hasOwn(each.flags, name));
      throw usage(
        `--${name} is a flag of ${wordList(owners)}, which this command line does not name`,
      );
    }
    const isHarmless = name === 'proxy-mode' && ['', 'userspace'].includes(text);
    if (foreign.isRefused && !isHarmless) {
      throw usage(`--${name}${foreign.isSwitch ? '' : `=${text}`}: ${foreign.why}`);
    }
  }
  const byReason = Map.groupBy(others, ({ name }) => FOREIGN_FLAGS.get(name)?.why ?? '');
  return [...byReason].map(([why, some]) => {
    return { why, flags: some.map(({ name }) => `--${name}`) };
  });
}

/** Every flag that a configuration file may set, by name, in the order of docs/reference/command-line.md. */
export function configurableFlags(): ReadonlyMap<string, FlagSpec<unknown>> {
  const commands = [...sources, ...sinks, ...others.filter(({ word }) => word === 'cleanup')];
  const tables: FlagTable[] = [GLOBAL_FLAGS, ...commands.map(({ flags }) => flags)];
  const all = tables.flatMap((table) => Object.entries(table));
  // Where several commands have a flag, the first one describes it.
  const found = new Map([...all, ...all.toReversed()]);
  // A file would name itself.
  found.delete('config');
  return found;
}

/** The meaning of the words of a command line: a whole command, a partial one, or nothing. */
export interface Topic {
  readonly source?: SourceCommand;
  readonly sink?: SinkCommand;
  readonly other?: OtherCommand;
  /** The words after that one. */
  readonly operands?: readonly string[];
}

/** Matches words to commands. `to-local` is optional everywhere. Throws a usage error with the expected words. */
export function readTopic(words: readonly string[]): Topic {
  const [first, ...rest] = words;
  if (first === undefined) return {};
  const other = others.find(({ word }) => word === first);
  if (other !== undefined) return { other, operands: rest };
  const source = sources.find(({ word }) => word === first);
  if (source === undefined) throw unknownCommand(first);

  const isLocal = rest[0] === 'to-local';
  const [sinkWord, ...extra] = isLocal ? rest.slice(1) : rest;
  if (sinkWord === undefined) return { source };
  const sink = sinks.find(({ word }) => word === sinkWord);
  if (sink === undefined) throw unknownSink(sinkWord);
  if (!sinksFor(source).includes(sink)) {
    const global = sources.filter(({ scope }) => scope === 'global');
    throw usage(
      `${sink.word} needs the state of the whole cluster, and ${source.word} has that of one node; ` +
        `use one of the sources ${wordList(global)}`,
    );
  }
  if (isLocal && sink.scope === 'global') {
    throw usage(
      `${sink.word} is not for one node: write ${source.word} ${sink.word} without to-local`,
    );
  }
  atMost(0, extra, sink.word);
  return { source, sink };
}

/** The sinks that a source has enough state for. */
export function sinksFor(source: SourceCommand): readonly SinkCommand[] {
  return sinks.filter((sink) => source.scope === 'global' || sink.scope === 'local');
}

/** The words of a topic, for `help`. */
export function topicWords({ source, sink, other }: Topic): string[] {
  return [other, source, sink].flatMap((command) => command?.word ?? []);
}

/** The same as `readTopic`; undefined if the words are wrong. */
export function guessTopic(words: readonly string[]): Topic | undefined {
  try {
    return readTopic(words);
  } catch {
    return undefined;
  }
}

/** The words for `help` about a command line with an error; none if its words are wrong. */
export function helpWords(argv: readonly string[]): string[] {
  return topicWords(guessTopic(splitLine(argv, ALL_FLAGS).words) ?? {});
}

function unknownCommand(word: string): Error {
  const hint = hintFor(word);
  if (hint !== undefined) return usage(`${word}: ${hint}`);
  if (word === 'to-local' || wordsOf(sinks).includes(word)) {
    return usage(`${word} needs a source before it: ${wordList(sources)}`);
  }
  const meant = suggestion(word, [...wordsOf(sources), ...wordsOf(others), 'help']);
  return usage(`unknown command ${JSON.stringify(word)}${meant}; sources are ${wordList(sources)}`);
}

function unknownSink(word: string): Error {
  const known = `backends are ${wordList(sinks)}`;
  const hint = hintFor(word);
  if (hint !== undefined) return usage(`${word}: ${hint}; ${known}`);
  if (wordsOf(sources).includes(word)) return usage(`${word} is a second source; ${known}`);
  const meant = suggestion(word, wordsOf(sinks));
  return usage(`unknown backend ${JSON.stringify(word)}${meant}; ${known}`);
}

function suggestion(word: string, known: readonly string[], prefix = ''): string {
  const meant = closest(word, known);
  return meant === undefined ? '' : ` (did you mean ${prefix}${meant}?)`;
}

function wordsOf(commands: readonly { readonly word: string }[]): string[] {
  return commands.map(({ word }) => word);
}

function wordList(commands: readonly { readonly word: string }[]): string {
  return wordsOf(commands).join(', ');
}
