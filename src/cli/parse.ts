import type { ConfigProblem } from '../config/documents.ts';
import type { ConfigFile } from '../config/resolve.ts';
import { KpngError } from '../errors.ts';
import { closest } from '../util/suggest.ts';
import type { Action, BoundCommand } from './command.ts';
import { FOREIGN_FLAGS, type IgnoredFlags } from './flags/foreign.ts';
import { GLOBAL_FLAGS, checkObserve } from './flags/global.ts';
import {
  misspeltVariables,
  readFlags,
  usage,
  type Environment,
  splitLine,
  type GivenFlag,
  type SplitLine,
} from './flags/read.ts';
import {
  effectiveSettings,
  pickValues,
  variableOf,
  type FlagSpec,
  type FlagTable,
} from './flags/table.ts';
import { REGISTRY } from './registry.ts';
import { readTopic, topicWords, type Topic } from './topic.ts';

const COMMANDS = [...REGISTRY.sources, ...REGISTRY.sinks, ...REGISTRY.others];

export type Invocation =
  | { readonly kind: 'help'; readonly topic: Topic }
  | { readonly kind: 'other'; readonly topic: Topic; readonly action: Action }
  | ({ readonly kind: 'run' } & BoundCommand)
  | { readonly kind: 'usage-error'; readonly error: KpngError; readonly topic: Topic };

/** The path of the configuration file that a command line or the environment names; empty: none. */
export function configPathOf(argv: readonly string[], env: Environment): string {
  const { words, flags, help } = splitLine(argv, allFlags());
  const [first, second] = words;
  const other = REGISTRY.others.find(({ word }) => word === first);
  // A file with errors must not prevent validating it.
  const needsNone = other !== undefined && (other.readsSettings !== true || second === 'validate');
  if (help || first === 'help' || needsNone) return '';
  const given = flags.findLast(({ name }) => name === 'config');
  return given?.text ?? env[variableOf('config')] ?? '';
}

/**
 * Parses a command line, without the program's name, together with the environment and a configuration file. Has no
 * side effects.
 */
export function parse(
  argv: readonly string[],
  env: Environment = {},
  config?: ConfigFile,
): Invocation {
  const asked = argv.length === 1 && /^--?version$/.test(argv[0] ?? '') ? ['version'] : argv;
  const known = allFlags();
  const line = splitLine(asked, known);
  const { words, rest, flags } = line;
  const input = { line, known, env, config };
  let topic: Topic = { kind: 'nothing' };
  try {
    refuseUnknown(flags, known);
    const isHelp = words[0] === 'help';
    try {
      topic = readTopic([...(isHelp ? words.slice(1) : words), ...rest]);
    } catch (error) {
      // A flag with a missing value may have consumed a word.
      readFlags(flags, known);
      throw error;
    }
    if (line.help || isHelp) return { kind: 'help', topic };
    if (topic.kind === 'other') {
      return { kind: 'other', topic, action: bindOther(topic, input) };
    }
    if (topic.kind === 'nothing' && config?.command !== undefined) {
      const { command } = config;
      topic = readTopic(command);
      if (topic.kind !== 'command') {
        throw usage(`the command of the configuration file, ${command.join(' ')}, is not complete`);
      }
    }
    return { kind: 'run', ...bindRun(topic, flags, input) };
  } catch (error) {
    if (error instanceof KpngError) return { kind: 'usage-error', error, topic };
    throw error;
  }
}

/** A command line, and what else sets flags. */
interface Input {
  readonly line: SplitLine;
  /** The flags of all commands. */
  readonly known: FlagTable;
  readonly env: Environment;
  readonly config: ConfigFile | undefined;
}

/** Throws for an unknown flag. Its error comes first, because its value looks like a word. */
function refuseUnknown(flags: readonly GivenFlag[], known: FlagTable): void {
  for (const { name } of flags) {
    if (Object.hasOwn(known, name) || FOREIGN_FLAGS.has(name)) continue;
    const meant = closest(name, Object.keys(known));
    const hint = meant === undefined ? '' : ` (did you mean --${meant}?)`;
    throw usage(`unknown flag ${name.length === 1 ? '-' : '--'}${name}${hint}`);
  }
}

function bindOther({ command, operands }: Topic & { kind: 'other' }, input: Input): Action {
  const { line, env, config } = input;
  const { flags, rest } = line;
  return command.bind({
    operands,
    rest,
    flags,
    fields: configurableFlags,
    configPath: config?.path ?? '',
    read: () => {
      const table = { ...GLOBAL_FLAGS, ...command.flags };
      const { own } = sortFlags(flags, table);
      return command.readsSettings === true
        ? readFlags(own, table, env, config)
        : readFlags(own, table);
    },
    bindRun: (words, given) =>
      bindRun(readTopic(words.length > 0 ? words : (config?.command ?? [])), given, input),
    parseRun: (words, file) => {
      const invocation = parse(words, {}, file);
      if (invocation.kind === 'usage-error') throw invocation.error;
      if (invocation.kind === 'run') return invocation;
      throw usage(`${words.join(' ')} names no source and backend`);
    },
  });
}

/** Binds a source and a sink to their options. Throws a usage error. */
function bindRun(
  topic: Topic,
  flags: readonly GivenFlag[],
  { known, env, config }: Input,
): BoundCommand {
  if (topic.kind === 'source') throw usage(`${topic.source.word}: no backend was named`);
  if (topic.kind !== 'command') throw usage('no source was named');
  const { source, sink } = topic;
  const table = { ...GLOBAL_FLAGS, ...source.flags, ...sink.flags };
  const { own, ignored } = sortFlags(flags, table);
  const raw = readFlags(own, table, env, config);
  const globals = pickValues(GLOBAL_FLAGS, raw);
  checkObserve(globals);
  const command = topicWords(topic);
  const idle = [...(config?.settings.values() ?? [])]
    .filter(({ flag }) => !Object.hasOwn(table, flag))
    .map(({ field, line }): ConfigProblem => {
      return { line, column: 1, field, message: `has no effect on ${command.join(' ')}` };
    });
  return {
    source: source.bind(raw),
    sink: sink.bind(raw),
    globals,
    given: new Set(raw.keys()),
    command,
    settings: effectiveSettings(table, raw),
    warnings: [...(config?.warnings ?? []), ...idle],
    misspelt: misspeltVariables(env, Object.keys(known)),
    ignored,
  };
}

/** The flags of a command, and those of kube-proxy and klog. Flags of another command are an error. */
function sortFlags(
  flags: readonly GivenFlag[],
  table: FlagTable,
): { own: readonly GivenFlag[]; ignored: readonly IgnoredFlags[] } {
  const own: GivenFlag[] = [];
  const ignored = new Map<string, string[]>();
  for (const flag of flags) {
    const { name, text = '' } = flag;
    const foreign = FOREIGN_FLAGS.get(name);
    if (Object.hasOwn(table, name)) {
      own.push(flag);
    } else if (foreign === undefined) {
      const owners = COMMANDS.filter((each) => Object.hasOwn(each.flags, name));
      throw usage(
        `--${name} is a flag of ${owners.map(({ word }) => word).join(', ')}, which this command ` +
          'line does not name',
      );
    } else if (foreign.refuses?.(text) === true) {
      throw usage(`--${name}${foreign.isSwitch ? '' : `=${text}`}: ${foreign.why}`);
    } else {
      ignored.set(foreign.why, [...(ignored.get(foreign.why) ?? []), `--${name}`]);
    }
  }
  return { own, ignored: [...ignored].map(([why, names]) => ({ why, flags: names })) };
}

/** All flags, to distinguish values from words before the command is known. */
export function allFlags(): FlagTable {
  return Object.assign({}, ...COMMANDS.map(({ flags }) => flags), GLOBAL_FLAGS) as FlagTable;
}

/** Every flag that a configuration file may set, by name, in the order of docs/reference/command-line.md. */
export function configurableFlags(): ReadonlyMap<string, FlagSpec<unknown>> {
  const { sources, sinks, others } = REGISTRY;
  const cleanup = others.filter(({ word }) => word === 'cleanup');
  const found = new Map<string, FlagSpec<unknown>>(Object.entries(GLOBAL_FLAGS));
  // A file would name itself with it.
  found.delete('config');
  for (const { flags } of [...sources, ...sinks, ...cleanup]) {
    for (const [flag, spec] of Object.entries(flags)) if (!found.has(flag)) found.set(flag, spec);
  }
  return found;
}
