import { KpngError } from '../errors.ts';
import { splitArgv } from './argv.ts';
import type { BoundSink, BoundSource } from './command.ts';
import { CLEANUP_FLAGS, readCleanup, type CleanupTargets } from './flags/cleanup.ts';
import { GLOBAL_FLAGS, type GlobalOptions } from './flags/global.ts';
import { readFlags, type Environment } from './flags/read.ts';
import { pickValues, type FlagTable } from './flags/table.ts';
import { readWords, usage, type Words } from './grammar.ts';
import { REGISTRY, type Registry } from './registry.ts';

/** What a command line asks for. */
export type Invocation =
  | { readonly kind: 'help'; readonly topic: Words }
  | { readonly kind: 'version' }
  | ({ readonly kind: 'cleanup' } & CleanupTargets)
  | {
      readonly kind: 'run';
      readonly source: BoundSource;
      readonly sink: BoundSink;
      readonly globals: GlobalOptions;
      /** Names of the flags that were given. */
      readonly given: ReadonlySet<string>;
    }
  | { readonly kind: 'usage-error'; readonly error: KpngError; readonly topic: Words };

/** Understands a command line, without the program's name. Has no side effects. */
export function parse(
  argv: readonly string[],
  env: Environment = {},
  registry: Registry = REGISTRY,
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
    if (words.kind === 'nothing') throw usage('no source was named');
    if (words.kind === 'version') {
      readFlags(known(flags, GLOBAL_FLAGS, everything, registry), GLOBAL_FLAGS, env);
      return { kind: 'version' };
    }
    if (words.kind === 'cleanup') {
      const table = { ...GLOBAL_FLAGS, ...CLEANUP_FLAGS };
      const raw = readFlags(known(flags, table, everything, registry), table, env);
      return { kind: 'cleanup', ...readCleanup(pickValues(CLEANUP_FLAGS, raw)) };
    }
    if (words.kind === 'source') {
      throw usage(`${words.source.word}: no backend was named, so there is nothing to do`);
    }
    const { source, sink } = words;
    const table = { ...GLOBAL_FLAGS, ...source.flags, ...sink.flags };
    const raw = readFlags(known(flags, table, everything, registry), table, env);
    return {
      kind: 'run',
      source: source.bind(raw),
      sink: sink.bind(raw),
      globals: pickValues(GLOBAL_FLAGS, raw),
      given: raw.given,
    };
  } catch (error) {
    if (error instanceof KpngError) return { kind: 'usage-error', error, topic: words };
    throw error;
  }
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
  for (const { flags } of [...registry.sources, ...registry.sinks]) Object.assign(table, flags);
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
