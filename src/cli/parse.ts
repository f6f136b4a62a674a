import type { ConfigFile } from '../config/config-file.ts';
import type { ConfigProblem } from '../config/problem.ts';
import { KpngError } from '../errors.ts';
import { ADMIN_COMMANDS } from './admin/commands.ts';
import type { AdminInvocation } from './admin/run.ts';
import { splitArgv } from './argv.ts';
import type { BoundSink, BoundSource } from './command.ts';
import { CLEANUP_FLAGS, readCleanup, type CleanupTargets } from './flags/cleanup.ts';
import { GLOBAL_FLAGS, type GlobalOptions } from './flags/global.ts';
import { misspeltVariables, type MisspeltVariable } from './flags/misspelt.ts';
import { checkObserve } from './flags/observe.ts';
import { readFlags, type Environment } from './flags/read.ts';
import { pickValues, variableOf, type FlagTable } from './flags/table.ts';
import { commandWords, readWords, usage, type ConfigAction, type Words } from './grammar.ts';
import { REGISTRY, type Registry } from './registry.ts';
import { effectiveSettings, type EffectiveSetting } from './settings.ts';

/** What a command line asks for. */
export type Invocation =
  | { readonly kind: 'help'; readonly topic: Words }
  | { readonly kind: 'version' }
  | ({ readonly kind: 'cleanup' } & CleanupTargets)
  | ({ readonly kind: 'admin' } & AdminInvocation)
  | ({ readonly kind: 'run' } & BoundCommand)
  | { readonly kind: 'config-validate'; readonly file: string }
  | ({ readonly kind: 'config-print'; readonly output: OutputForm } & BoundCommand)
  | { readonly kind: 'usage-error'; readonly error: KpngError; readonly topic: Words };

/** A source and a sink with everything that they are set to. */
export interface BoundCommand {
  readonly source: BoundSource;
  readonly sink: BoundSink;
  readonly globals: GlobalOptions;
  /** Names of the flags that were given: on the command line, in the environment or in a file. */
  readonly given: ReadonlySet<string>;
  /** The words that name it. */
  readonly command: readonly string[];
  readonly settings: readonly EffectiveSetting[];
  /** What of the configuration file has no effect. */
  readonly warnings: readonly ConfigProblem[];
  readonly misspelt: readonly MisspeltVariable[];
}

/** The path of the configuration file that a command line or the environment names; empty: none. */
export function configPathOf(
  argv: readonly string[],
  env: Environment,
  registry: Registry = REGISTRY,
): string {
  const { words, flags, help } = splitArgv(argv, unionTable(registry));
  const [first = '', second] = words;
  // A file that is wrong keeps nobody from looking for what is wrong with it.
  const needsNone = ['help', 'version'].includes(first) || second === 'validate';
  if (help || needsNone) return '';
  const given = flags.findLast((each) => each.startsWith('--config='));
  return given?.slice('--config='.length) ?? env[variableOf('config')] ?? '';
}

/**
 * Understands a command line, without the program's name, and what the environment and a configuration
 * file add to it. Has no side effects.
 */
export function parse(
  argv: readonly string[],
  env: Environment = {},
  registry: Registry = REGISTRY,
  config?: ConfigFile,
): Invocation {
  if (argv.length === 1 && /^--?version$/.test(argv[0] ?? '')) return { kind: 'version' };
  const everything = unionTable(registry);
  const { words: given, flags, help } = splitArgv(argv, everything);
  let words: Words = { kind: 'nothing' };
  try {
    readFlags(unknownFlags(flags, everything), everything);
    const asksHelp = help || given[0] === 'help';
    words = readWordsOf(given[0] === 'help' ? given.slice(1) : given, flags, everything, registry);
    if (asksHelp) return { kind: 'help', topic: words };
    if (words.kind === 'nothing' && config?.command !== undefined) {
      words = wordsOfFile(config.command, registry);
    }
    if (words.kind === 'nothing') throw usage('no source was named');
    if (words.kind === 'config') {
      return readConfigCommand(words.action, { flags, env, everything, registry, config });
    }
    if (words.kind === 'version') {
      readFlags(known(flags, GLOBAL_FLAGS, everything, registry), GLOBAL_FLAGS, env);
      return { kind: 'version' };
    }
    if (words.kind === 'cleanup') {
      const table = { ...GLOBAL_FLAGS, ...CLEANUP_FLAGS };
      const raw = readFlags(known(flags, table, everything, registry), table, env, config);
      return { kind: 'cleanup', ...readCleanup(pickValues(CLEANUP_FLAGS, raw)) };
    }
    if (words.kind === 'admin') {
      return {
        kind: 'admin',
        ...bindAdmin(words, { flags, env, everything, registry, config }),
      };
    }
    return { kind: 'run', ...bind(words, { flags, env, everything, registry, config }) };
  } catch (error) {
    if (error instanceof KpngError) return { kind: 'usage-error', error, topic: words };
    throw error;
  }
}

interface Given {
  readonly flags: readonly string[];
  readonly env: Environment;
  readonly everything: FlagTable;
  readonly registry: Registry;
  readonly config: ConfigFile | undefined;
}

/** Gives a source and a sink their options. */
function bind(words: Words, { flags, env, everything, registry, config }: Given): BoundCommand {
  if (words.kind === 'source') {
    throw usage(`${words.source.word}: no backend was named, so there is nothing to do`);
  }
  if (words.kind !== 'command') throw usage('no source was named');
  const { source, sink } = words;
  const table = { ...GLOBAL_FLAGS, ...source.flags, ...sink.flags };
  const raw = readFlags(known(flags, table, everything, registry), table, env, config);
  const globals = pickValues(GLOBAL_FLAGS, raw);
  checkObserve(globals);
  const command = commandWords(source, sink).split(' ');
  return {
    source: source.bind(raw),
    sink: sink.bind(raw),
    globals,
    given: raw.given,
    command,
    settings: effectiveSettings(table, raw),
    warnings: [...(config?.warnings ?? []), ...idle(config, table, command)],
    misspelt: misspeltVariables(env, Object.keys(everything)),
  };
}

/** Without `--socket`, the process that is meant is the one that this environment and file would start. */
function bindAdmin(
  { command, operand }: Words & { kind: 'admin' },
  { flags, env, everything, registry, config }: Given,
): AdminInvocation {
  const table = { ...GLOBAL_FLAGS, ...command.flags };
  const raw = readFlags(known(flags, table, everything, registry), table, env, config);
  const own: Readonly<Record<string, unknown>> = pickValues(command.flags, raw);
  const socket = raw.given.has('socket')
    ? String(own['socket'])
    : pickValues(GLOBAL_FLAGS, raw)['admin-socket'];
  return { command, operand, socket, flags: own };
}

/** What a file sets that the command has no flag for. */
function idle(
  config: ConfigFile | undefined,
  table: FlagTable,
  command: readonly string[],
): ConfigProblem[] {
  return [...(config?.settings.values() ?? [])]
    .filter(({ flag }) => !Object.hasOwn(table, flag))
    .map(({ field, line }) => {
      return { line, column: 1, field, message: `has no effect on ${command.join(' ')}` };
    });
}

function wordsOfFile(command: readonly string[], registry: Registry): Words {
  const words = readWords(command, registry);
  if (words.kind === 'command') return words;
  throw usage(`the command of the configuration file, ${command.join(' ')}, is not complete`);
}

/** How a list is printed. */
const OUTPUT_FORMS = ['table', 'json', 'yaml'] as const;
export type OutputForm = (typeof OUTPUT_FORMS)[number];

function readConfigCommand(action: ConfigAction | undefined, given: Given): Invocation {
  if (action === undefined) throw usage('write config validate or config print');
  if (action.name === 'validate') {
    readFlags(known(given.flags, GLOBAL_FLAGS, given.everything, given.registry), GLOBAL_FLAGS);
    return { kind: 'config-validate', file: action.file };
  }
  const { registry, config } = given;
  // `to-file` has an --output of its own, which is a path.
  const form = OUTPUT_FORMS.find((each) => given.flags.includes(`--output=${each}`));
  const flags = given.flags.filter((each) => each !== `--output=${form}`);
  const [...words] = action.words.length > 0 ? action.words : (config?.command ?? []);
  const bound = bind(readWords(words, registry), { ...given, flags });
  return { kind: 'config-print', output: form ?? 'table', ...bound };
}

/** As `readWords`; but when a flag without value has taken a word for one, that is what is said. */
function readWordsOf(
  words: readonly string[],
  flags: readonly string[],
  everything: FlagTable,
  registry: Registry,
): Words {
  try {
    return readWords(words, registry);
  } catch (error) {
    readFlags(flags, everything);
    throw error;
  }
}

/** Every flag there is, so that values can be told from words before the command is known. */
function unionTable(registry: Registry): FlagTable {
  const table: Record<string, FlagTable[string]> = { ...GLOBAL_FLAGS, ...CLEANUP_FLAGS };
  for (const { flags } of [...ADMIN_COMMANDS, ...registry.sources, ...registry.sinks]) {
    Object.assign(table, flags);
  }
  return table;
}

/** Flags that no command has: the error about them comes first, as their values pass for words. */
function unknownFlags(flags: readonly string[], everything: FlagTable): readonly string[] {
  return flags.filter((each) => !Object.hasOwn(everything, flagName(each)));
}

function flagName(flag: string): string {
  return /^--([^=]+)/.exec(flag)?.[1] ?? '';
}

/** Passes the flags on, unless one of them belongs to another command: that gets a clear error. */
function known(
  flags: readonly string[],
  table: FlagTable,
  everything: FlagTable,
  registry: Registry,
): readonly string[] {
  for (const each of flags) {
    const name = flagName(each);
    if (Object.hasOwn(table, name) || !Object.hasOwn(everything, name)) continue;
    const owners = [
      ...registry.sources,
      ...registry.sinks,
      ...ADMIN_COMMANDS,
      { word: 'cleanup', flags: CLEANUP_FLAGS },
    ]
      .filter((command) => Object.hasOwn(command.flags, name))
      .map(({ word }) => word);
    throw usage(
      `--${name} is a flag of ${owners.join(', ')}, which this command line does not name`,
    );
  }
  return flags;
}
