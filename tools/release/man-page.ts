import { ABOUT, flagHelp, helpSections, type HelpSection } from '../../src/cli/help.ts';
import { PROGRAM } from '../../src/cli/command.ts';
import { GLOBAL_FLAGS } from '../../src/cli/flags/global.ts';
import { type FlagSpec, type FlagTable, isSwitch } from '../../src/cli/flags/table.ts';
import type { Registry } from '../../src/cli/registry.ts';

export interface ManPageOptions {
  readonly version: string;
  /** As `2026-11-21`. */
  readonly date: string;
}

/** The page kpng-userspace(1) in the language of man(7), made from the same tables as `--help`. */
export function manPage(registry: Registry, { version, date }: ManPageOptions): string {
  const { sources, sinks, others } = registry;
  const [, ...root] = helpSections({});
  const commands = [...sources, ...sinks, ...others];
  const seen = new Set<string>();
  const lines = [
    `.TH ${escape(PROGRAM.toUpperCase())} 1 "${date}" "${escape(`${PROGRAM} ${version}`)}" "User Commands"`,
    '.SH NAME',
    `${escape(PROGRAM)} \\- ${ABOUT}`,
    // Flags have tables of their own below.
    ...root
      .filter(({ heading }) => !Object.values(GLOBAL_FLAGS).some(({ group }) => group === heading))
      .flatMap(section),
    '.SH COMMANDS',
    ...commands.flatMap(({ word, summary, description }) => [
      '.TP',
      `.B ${escape(word)}`,
      ...[`${summary}.`, ...description].flatMap((text, index) =>
        index === 0 ? [paragraph(text)] : ['.IP', paragraph(text)],
      ),
    ]),
    '.SH FLAGS OF ALL COMMANDS',
    ...flags(GLOBAL_FLAGS),
    ...commands.flatMap((command) => {
      // Backends that have the flags of one before them are left out.
      const names = Object.keys(command.flags).join();
      if (names === '' || seen.has(names)) return [];
      seen.add(names);
      return [`.SH FLAGS OF ${escape(command.word.toUpperCase())}`].concat(flags(command.flags));
    }),
    '.SH SIGNALS',
    '.TP\n.B TERM, INT, QUIT',
    'The first one stops in order, the second one ends at once with code 1.',
    '.TP\n.B HUP',
    'Reads the configuration file again; at a terminal, as TERM.',
    '.SH SEE ALSO',
    '.BR nft (8), iptables (8), conntrack (8), ip (8)',
  ];
  return `${lines.join('\n')}\n`;
}

function section({ heading, text, lines = [], rows = [] }: HelpSection): string[] {
  return [
    `.SH ${(heading === undefined ? 'Description' : heading).toUpperCase()}`,
    ...(text === undefined ? [] : [paragraph(text)]),
    ...(lines.length === 0 ? [] : ['.nf', ...lines.map(paragraph), '.fi']),
    ...rows.flatMap(([label, help]) => ['.TP', `.B ${escape(label)}`, paragraph(help)]),
  ];
}

function flags(table: FlagTable): string[] {
  return Object.entries(table).flatMap(([name, spec]) => {
    return ['.TP', label(name, spec), paragraph(flagHelp(spec))];
  });
}

function label(name: string, { kind, short, aliases = [] }: FlagSpec<unknown>): string {
  const placeholder = escape(kind.placeholder);
  const value = isSwitch(kind) ? `[=${placeholder}]` : ` \\fI${placeholder}\\fR`;
  const long = [name, ...aliases].map((each) => `--${each}`);
  const names = short === undefined ? long : [`-${short}`, ...long];
  return `${names.map((each) => `\\fB${escape(each)}\\fR`).join(', ')}${value}`;
}

/** A line of text. One that begins with a dot or an apostrophe would be a request. */
function paragraph(words: string): string {
  const line = escape(words);
  return /^[.']/.test(line) ? `\\&${line}` : line;
}

/** Backslashes, and hyphens that are to be copied as such; typographic marks have names. */
function escape(words: string): string {
  return words
    .replaceAll('\\', '\\e')
    .replaceAll('-', '\\-')
    .replaceAll('’', '\\(cq')
    .replaceAll('…', '...');
}
