import type { FlagTable } from './flags/table.ts';

/** A command line, taken apart but not yet understood. */
export interface SplitArgv {
  /** What is not a flag, in order: `file`, `to-local`, `to-userspace`. */
  readonly words: readonly string[];
  /** Flags in one form, `--name=value`. One without value was given without; unknown ones are as given. */
  readonly flags: readonly string[];
  readonly help: boolean;
}

/**
 * Takes a command line apart. Flags are known by table, so it is clear which arguments are values,
 * and flags may stand before, between and after the words.
 *
 * A flag may be written `--name value`, `--name=value`, and with a single dash as programs in Go
 * allow: `-name=value`. Flags that are on or off take a value only with `=`. One-letter flags may have
 * their value attached: `-v=4`, `-v4`, `-v 4`.
 */
export function splitArgv(argv: readonly string[], table: FlagTable): SplitArgv {
  const names = flagNames(table);
  const words: string[] = [];
  const flags: string[] = [];
  let help = false;
  for (let i = 0; i < argv.length; i += 1) {
    const arg = argv[i] ?? '';
    if (arg === '--') {
      words.push(...argv.slice(i + 1));
      break;
    }
    if (arg.length < 2 || !arg.startsWith('-')) {
      words.push(arg);
      continue;
    }
    if (arg === '--help' || arg === '-help' || arg === '-h') {
      help = true;
      continue;
    }
    const flag = readFlag(arg, names);
    if (flag === undefined) {
      flags.push(arg);
      continue;
    }
    const next = argv[i + 1];
    if (flag.value !== undefined) {
      flags.push(`--${flag.name}=${flag.value}`);
    } else if (table[flag.name]?.kind.bare !== undefined) {
      flags.push(`--${flag.name}=${table[flag.name]?.kind.bare}`);
    } else if (next !== undefined && !looksLikeFlag(next)) {
      flags.push(`--${flag.name}=${next}`);
      i += 1;
    } else {
      flags.push(`--${flag.name}`);
    }
  }
  return { words, flags, help };
}

interface Names {
  /** Long names and aliases, to the flag's name. */
  readonly long: ReadonlyMap<string, string>;
  /** One-letter names, to the flag's name. */
  readonly short: ReadonlyMap<string, string>;
}

function flagNames(table: FlagTable): Names {
  const long = new Map<string, string>();
  const short = new Map<string, string>();
  for (const [name, spec] of Object.entries(table)) {
    for (const each of [name, ...(spec.aliases ?? [])]) long.set(each, name);
    if (spec.short !== undefined) short.set(spec.short, name);
  }
  return { long, short };
}

function readFlag(
  arg: string,
  { long, short }: Names,
): { name: string; value: string | undefined } | undefined {
  const dashes = arg.startsWith('--') ? 2 : 1;
  const equals = arg.indexOf('=');
  const given = arg.slice(dashes, equals === -1 ? undefined : equals);
  const value = equals === -1 ? undefined : arg.slice(equals + 1);
  const name = long.get(given);
  if (name !== undefined) return { name, value };
  if (dashes === 2) return undefined;
  const letter = short.get(arg.slice(1, 2));
  if (letter === undefined) return undefined;
  const rest = arg.slice(2);
  if (rest === '') return { name: letter, value: undefined };
  return { name: letter, value: rest.startsWith('=') ? rest.slice(1) : rest };
}

/** A lone dash and negative numbers are values; the numbers get a better error from their flag. */
function looksLikeFlag(arg: string): boolean {
  return /^-[^\d.]/.test(arg);
}
