import { parseArgs, type ParseArgsConfig } from 'node:util';
import { FOREIGN_FLAGS } from './foreign.ts';
import type { FlagTable } from './table.ts';

/** A flag as written on a command line. */
export interface GivenFlag {
  /** Its canonical name, without dashes. */
  readonly name: string;
  /** As written, possibly an alias: `--tls-ca`. */
  readonly written: string;
  /** Undefined: the value is missing. */
  readonly text: string | undefined;
}

/** A command line, split but not yet parsed. */
export interface SplitLine {
  /** Arguments that are not flags, in order: `file`, `to-userspace`. */
  readonly words: readonly string[];
  /** What follows `--`. */
  readonly rest: readonly string[];
  readonly flags: readonly GivenFlag[];
  /** Whether help is requested. */
  readonly help: boolean;
}

/**
 * Splits a command line with `util.parseArgs`. The table distinguishes flags with a value from those without, so flags
 * may stand before, between and after the words. As in Go, long flags may have one dash, and one-letter flags a
 * value after `=`.
 */
export function splitLine(argv: readonly string[], table: FlagTable): SplitLine {
  const { options, names } = optionsOf(table);
  const end = argv.indexOf('--');
  const args = argv.map((arg, index) =>
    end === -1 || index < end ? doubleDashed(arg, names) : arg,
  );
  const { tokens } = parseArgs({ args, options, strict: false, tokens: true });
  const words: string[] = [];
  const rest: string[] = [];
  const flags: GivenFlag[] = [];
  let help = false;
  let isRest = false;
  for (const token of tokens) {
    if (token.kind === 'option-terminator') isRest = true;
    else if (token.kind === 'positional') (isRest ? rest : words).push(token.value);
    else if (token.name === 'help') help = true;
    else {
      const name = names.get(token.name) ?? token.name;
      const bare = Object.hasOwn(table, name) ? table[name]?.kind.bare : 'true';
      flags.push({ name, written: token.rawName, text: valueOf(token, bare) });
    }
  }
  return { words, rest, flags, help };
}

function valueOf(
  token: { readonly value: string | undefined; readonly inlineValue: boolean | undefined },
  bare: string | undefined,
): string | undefined {
  if (token.value === undefined) return bare;
  // A flag with a forgotten value must not consume the next flag.
  return token.inlineValue === false && looksLikeFlag(token.value) ? undefined : token.value;
}

/** The options for parseArgs, and the flag's name for each name and letter. */
function optionsOf(table: FlagTable) {
  const options: NonNullable<ParseArgsConfig['options']> = {};
  const names = new Map<string, string>();
  const add = (
    name: string,
    type: 'boolean' | 'string',
    aliases: readonly string[],
    short?: string,
  ): void => {
    for (const each of [name, ...aliases]) {
      options[each] = { type };
      names.set(each, name);
    }
    if (short === undefined) return;
    options[name] = { type, short };
    names.set(short, name);
  };
  add('help', 'boolean', [], 'h');
  for (const [name, { isSwitch }] of FOREIGN_FLAGS) {
    add(name, isSwitch ? 'boolean' : 'string', [name.replaceAll('-', '_')]);
  }
  for (const [name, { kind, short, aliases = [] }] of Object.entries(table)) {
    add(name, kind.bare === undefined ? 'string' : 'boolean', aliases, short);
  }
  return { options, names };
}

/** `-flag=value` as `--flag=value`; `-v=4` as `--v=4`. `-v4` and negative numbers stay. */
function doubleDashed(arg: string, names: ReadonlyMap<string, string>): string {
  const [, given = '', value = ''] = /^-([^-=\d.][^=]*)(=.*)?$/s.exec(arg) ?? [];
  if (given === '') return arg;
  const name = names.get(given);
  if (name !== undefined) return `--${name}${value}`;
  return names.has(given.charAt(0)) ? arg : `-${arg}`;
}

/** A lone dash and negative numbers are values; the flag has a better error for the numbers. */
function looksLikeFlag(arg: string): boolean {
  return /^-[^\d.]/.test(arg);
}
