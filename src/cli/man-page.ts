import { ADMIN_COMMANDS } from './admin/commands.ts';
import { CLEANUP_FLAGS } from './flags/cleanup.ts';
import { GLOBAL_FLAGS } from './flags/global.ts';
import { defaultText, type FlagSpec, type FlagTable } from './flags/table.ts';
import { commandWords } from './grammar.ts';
import { PROGRAM } from './help.ts';
import type { Registry } from './registry.ts';

export interface ManPageOptions {
  readonly version: string;
  /** As `2026-11-21`. */
  readonly date: string;
}

/** The page kpng-userspace(1), in the language of man(7), made from the same tables as `--help`. */
export function manPage(registry: Registry, { version, date }: ManPageOptions): string {
  const { sources, sinks } = registry;
  const lines = [
    `.TH KPNG\\-USERSPACE 1 "${date}" ${quoted(`${PROGRAM} ${version}`)} "User Commands"`,
    '.SH NAME',
    `${escape(PROGRAM)} \\- a userspace TCP and UDP load balancer for Kubernetes Services`,
    '.SH SYNOPSIS',
    synopsis('[global flags] <source> [flags] [to-local] <backend> [flags]'),
    ...[...ADMIN_COMMANDS.map(({ word }) => word), 'cleanup', 'config', 'completion'].flatMap(
      (word) => ['.br', synopsis(`${word} [flags]`)],
    ),
    '.SH DESCRIPTION',
    paragraph(
      'A command line names where the state of the Services comes from (a source) and what is done ' +
        'with it (a backend). Flags may stand anywhere after the name of the program, as --flag ' +
        'value, --flag=value or, as in Go, -flag=value.',
    ),
    '.SH SOURCES',
    ...sources.flatMap(({ word, summary, description }) => [
      item(word, summary),
      ...description.flatMap((text) => ['.IP', paragraph(text)]),
    ]),
    '.SH BACKENDS',
    ...sinks.flatMap(({ word, summary, description }) => [
      item(word, summary),
      ...description.flatMap((text) => ['.IP', paragraph(text)]),
    ]),
    '.SH A RUNNING PROXY',
    ...ADMIN_COMMANDS.flatMap(({ word, operand, summary, description }) => [
      item([word, operand].filter((part) => part !== undefined).join(' '), summary),
      '.IP',
      paragraph(description),
    ]),
    '.SH FLAGS OF ALL COMMANDS',
    flags(GLOBAL_FLAGS),
    ...[...sources, ...withOwnFlags(sinks), ...ADMIN_COMMANDS].flatMap((command) => [
      `.SH FLAGS OF ${escape(command.word.toUpperCase())}`,
      flags(command.flags),
    ]),
    '.SH FLAGS OF CLEANUP',
    flags(CLEANUP_FLAGS),
    '.SH EXAMPLES',
    ...[...sources, ...sinks].flatMap(({ examples }) =>
      examples.flatMap(({ line, does }) => [
        '.TP',
        paragraph(does),
        `.B ${escape(`${PROGRAM} ${line}`)}`,
      ]),
    ),
    '.SH SIGNALS',
    item('TERM, INT', 'The first one stops in order, the second one ends at once with code 1.'),
    item('HUP', 'Reads the configuration file again; at a terminal, as TERM.'),
    '.SH EXIT STATUS',
    item('0', 'Ended as asked.'),
    item('1', 'Failed while running, or a second signal.'),
    item('2', 'A flag, a word or a configuration file is wrong.'),
    '.SH ENVIRONMENT',
    paragraph(
      'Every flag has a variable: KPNG_ and its name in capitals with underscores, such as ' +
        'KPNG_METRICS_BIND_ADDRESS. The flag counts more.',
    ),
    '.SH SEE ALSO',
    '.BR nft (8), iptables (8), conntrack (8), ip (8)',
    '.PP',
    paragraph(`${commandWordsExample(registry)} and all others: ${PROGRAM} help SOURCE BACKEND.`),
  ];
  return `${lines.join('\n')}\n`;
}

/** Backends that have the flags of one before them are left out. */
function withOwnFlags<Command extends { readonly flags: FlagTable }>(
  commands: readonly Command[],
): Command[] {
  const seen = new Set<string>();
  return commands.filter(({ flags: table }) => {
    const names = Object.keys(table).join();
    if (seen.has(names)) return false;
    seen.add(names);
    return true;
  });
}

function flags(table: FlagTable): string {
  return Object.entries(table)
    .flatMap(([name, spec]) => ['.TP', label(name, spec), text(spec)])
    .join('\n');
}

function label(name: string, { kind, short, aliases = [] }: FlagSpec<unknown>): string {
  const value =
    kind.bare === undefined
      ? ` \\fI${escape(kind.placeholder)}\\fR`
      : `[=${escape(kind.placeholder)}]`;
  const names = [
    ...(short === undefined ? [] : [`-${short}`]),
    ...[name, ...aliases].map((each) => `--${each}`),
  ];
  return `${names.map((each) => `\\fB${escape(each)}\\fR`).join(', ')}${value}`;
}

function text(spec: FlagSpec<unknown>): string {
  const standard = defaultText(spec);
  return paragraph(standard === undefined ? spec.help : `${spec.help} (default ${standard})`);
}

function item(term: string, what: string): string {
  return `.TP\n.B ${escape(term)}\n${paragraph(what)}`;
}

function synopsis(rest: string): string {
  return `.B ${escape(PROGRAM)}\n${escape(rest)}`;
}

function commandWordsExample({ sources, sinks }: Registry): string {
  const [source, sink] = [sources[0], sinks[0]];
  if (source === undefined || sink === undefined) return PROGRAM;
  return `${PROGRAM} help ${commandWords(source, sink)}`;
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

function quoted(words: string): string {
  return `"${escape(words)}"`;
}
