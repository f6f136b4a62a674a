import { ADMIN_COMMANDS } from '../admin/commands.ts';
import { CLEANUP_FLAGS } from '../flags/cleanup.ts';
import { GLOBAL_FLAGS } from '../flags/global.ts';
import type { FlagSpec, FlagTable } from '../flags/table.ts';
import type { Registry } from '../registry.ts';
import { SERVICE_FLAGS } from '../service/flags.ts';

/** Something that may stand at the cursor. */
export interface Candidate {
  readonly value: string;
  readonly summary: string;
}

/** What may stand there: one of these, or a file of the host. */
export interface Completion {
  readonly candidates: readonly Candidate[];
  readonly files: boolean;
}

/** Names of shells that there are scripts for. */
export const SHELLS = ['bash', 'zsh', 'fish', 'powershell'] as const;
export type Shell = (typeof SHELLS)[number];

/** Commands beside sources, with what may follow them. */
const COMMANDS: Readonly<Record<string, readonly [summary: string, ...after: readonly string[]]>> =
  {
    cleanup: ['Remove the packet rules and addresses that a proxy has left'],
    config: ['Check a configuration file, or print what everything is set to', 'validate', 'print'],
    service: [
      'Install, start, stop and remove it as a service of Windows',
      'install',
      'uninstall',
      'start',
      'stop',
      'status',
    ],
    completion: ['Print a script that completes command lines', ...SHELLS],
    version: ['Print the version'],
    help: ['Explain a command'],
  };

const FILES: Completion = { candidates: [], files: true };
const NOTHING: Completion = { candidates: [], files: false };
/** Placeholders of flags whose value is a file or folder. */
const PATHS = new Set(['file', 'path', 'dir', 'folder', 'files']);

/**
 * What may stand at the cursor of a command line, from the tables that parse it and make `--help`.
 *
 * `before`: the arguments before the one at the cursor, without the program's name; `current`: what is typed of
 * that one. Only candidates that begin with it are given. Those of a value that follows `=` have the flag, too.
 */
export function complete(
  before: readonly string[],
  current: string,
  registry: Registry,
): Completion {
  const { words, open } = read(before, allFlags(registry));
  const table = flagsFor(words, registry);
  if (open !== undefined) return valuesOf(open, '', current);
  const assigned = /^(--?([^=]+)=)(.*)$/.exec(current);
  if (assigned !== null) {
    const [, prefix = '', name = '', value = ''] = assigned;
    const spec = find(table, name);
    return spec === undefined ? NOTHING : valuesOf(spec, prefix, value);
  }
  if (current.startsWith('-')) return only(flagCandidates(table), current);
  if (words[0] === 'config' && words[1] === 'validate') return FILES;
  return only(nextWords(words, registry), current);
}

/** The words of a command line, and the flag whose value is to come. */
function read(
  args: readonly string[],
  everything: FlagTable,
): { words: string[]; open: FlagSpec<unknown> | undefined } {
  const words: string[] = [];
  let open: FlagSpec<unknown> | undefined;
  for (const arg of args) {
    if (open !== undefined) {
      open = undefined;
    } else if (!arg.startsWith('-')) {
      words.push(arg);
    } else if (!arg.includes('=')) {
      const spec = find(everything, arg.replace(/^--?/, ''));
      open = spec?.kind.bare === undefined ? spec : undefined;
    }
  }
  return { words, open };
}

/** The flag of a name, an alias or a letter. */
function find(table: FlagTable, name: string): FlagSpec<unknown> | undefined {
  if (Object.hasOwn(table, name)) return table[name];
  return Object.values(table).find(
    ({ short, aliases }) => short === name || aliases?.includes(name),
  );
}

function valuesOf({ kind }: FlagSpec<unknown>, prefix: string, current: string): Completion {
  if (kind.choices === undefined) return PATHS.has(kind.placeholder) ? FILES : NOTHING;
  const found = kind.choices.filter((choice) => choice.startsWith(current));
  return {
    candidates: found.map((choice) => ({ value: prefix + choice, summary: '' })),
    files: false,
  };
}

/** Every flag of a line with these words. */
function flagsFor(words: readonly string[], registry: Registry): FlagTable {
  const tables: FlagTable[] = [GLOBAL_FLAGS];
  const [first] = words;
  if (first === 'cleanup') tables.push(CLEANUP_FLAGS);
  if (first === 'service') return SERVICE_FLAGS;
  if (first === 'completion' || first === 'version') return {};
  for (const command of [...registry.sources, ...registry.sinks, ...ADMIN_COMMANDS]) {
    if (words.includes(command.word)) tables.push(command.flags);
  }
  return Object.assign({}, ...tables) as FlagTable;
}

function allFlags(registry: Registry): FlagTable {
  const tables = [...registry.sources, ...registry.sinks, ...ADMIN_COMMANDS].map(
    ({ flags }) => flags,
  );
  return Object.assign({}, SERVICE_FLAGS, CLEANUP_FLAGS, ...tables, GLOBAL_FLAGS) as FlagTable;
}

function flagCandidates(table: FlagTable): Candidate[] {
  const flags = Object.entries(table).map(([name, { help }]) => ({
    value: `--${name}`,
    summary: firstSentence(help),
  }));
  return [...flags, { value: '--help', summary: 'Explain the command' }];
}

function nextWords(words: readonly string[], registry: Registry): Candidate[] {
  const [first, ...rest] = words[0] === 'help' ? words.slice(1) : words;
  const { sources, sinks } = registry;
  if (first === undefined) {
    const commands = Object.entries(COMMANDS).map(([value, [summary]]) => ({ value, summary }));
    return [...[...sources, ...ADMIN_COMMANDS].map(candidate), ...commands];
  }
  const [, ...after] = COMMANDS[first] ?? [''];
  if (after.length > 0)
    return rest.length > 0 ? [] : after.map((value) => ({ value, summary: '' }));
  const source = sources.find(({ word }) => word === first);
  if (source === undefined || sinks.some(({ word }) => rest.includes(word))) return [];
  const toLocal = rest[0] === 'to-local';
  const fitting = sinks.filter(
    ({ scope, toLocalOptional }) =>
      (source.scope === 'global' || scope === 'local') &&
      (toLocal ? scope === 'local' : source.toLocalOptional || toLocalOptional),
  );
  const word = { value: 'to-local', summary: 'What this node needs of the state' };
  return [...(toLocal ? [] : [word]), ...fitting.map(candidate)];
}

function candidate({ word, summary }: { word: string; summary: string }): Candidate {
  return { value: word, summary };
}

function only(candidates: readonly Candidate[], current: string): Completion {
  return { candidates: candidates.filter(({ value }) => value.startsWith(current)), files: false };
}

function firstSentence(text: string): string {
  return /^.*?[.:](?= |$)/.exec(text)?.[0].slice(0, -1) ?? text;
}
