import { ADMIN_COMMANDS } from './admin/commands.ts';
import type { SinkCommand } from './command.ts';
import { CLEANUP_FLAGS } from './flags/cleanup.ts';
import { GLOBAL_FLAGS } from './flags/global.ts';
import { defaultText, type FlagSpec, type FlagTable } from './flags/table.ts';
import { helpText } from './help.ts';
import type { Registry } from './registry.ts';
import { SERVICE_FLAGS } from './service/flags.ts';

/**
 * The page docs/cli.md, made from the same tables as `--help`. A test compares it with the file, and
 * writes the file when it is run with UPDATE_DOCS=1.
 */
export function helpPage(registry: Registry): string {
  return [
    '# Command line',
    '',
    '<!-- Made by src/cli/help-page.ts. To write it anew: UPDATE_DOCS=1 npx tap test/cli/docs.test.ts -->',
    '',
    'A command line names where the state of the Services comes from (a source) and what is done with it',
    '(a backend). `kpng` is the same program under the name that command lines of kpng use, and',
    '`kpng-json` is short for `kpng-userspace local to-json`.',
    '',
    block(helpText({ kind: 'nothing' }, registry)),
    '',
    '## How flags are written',
    '',
    '- `--flag value`, `--flag=value`, and with one dash as programs in Go allow: `-flag=value`.',
    '- One-letter flags may have their value attached: `-v=4`, `-v4`, `-v 4`, `-i state.yaml`.',
    '- Flags that are on or off need no value: `--flag` is `--flag=true`, and another value needs the `=`.',
    '- Flags may stand before, between and after the words. When a flag is repeated the last one counts,',
    '  but lists are joined.',
    '- Every flag has an environment variable, `KPNG_` and its name: `KPNG_METRICS_BIND_ADDRESS`, `KPNG_V`; and a field in',
    '  configuration files ([configuration.md](configuration.md)). The flag counts most, then the variable, then the file.',
    '- Times have a unit: `250ms`, `30s`, `1m30s`, `1.5h`. Sizes are bytes or have one: `4194304`, `4Mi`.',
    '',
    '## Signals',
    '',
    '| signal | what it does |',
    '| --- | --- |',
    '| INT, TERM | The first one stops in order: the source, then the way in for new clients, then the connections, which may run on for `--drain-timeout`. Health answers 503 meanwhile. The second one ends at once, with exit code 1. |',
    '| HUP | At a terminal, and on Windows at a console, which it means was closed: the same. Otherwise the configuration file is read again, as it is whenever it changes ([configuration.md](configuration.md)). |',
    '',
    '`to-json` ends with 0 when a write finds that its reader has gone, as after `| head`.',
    '',
    '## What is logged',
    '',
    'Log lines go to standard error. At a terminal they are text, otherwise JSON with one object for each line:',
    '`level` (error, warn, info), `time`, `msg`, and keys such as `servicePortName`, `endpoint`, `err` and `code`',
    '([errors.md](errors.md)). `v` is the verbosity that the line needs. Below `-v=3`, lines that clients can cause',
    'are limited to one a second of each kind after a burst of ten; the next one tells in `suppressed` how many were',
    'left out.',
    '',
    '## Every flag',
    '',
    '### All commands',
    '',
    flagTable(GLOBAL_FLAGS),
    ...registry.sources.flatMap(({ word, flags }) => ['', `### ${word}`, '', flagTable(flags)]),
    ...registry.sinks.flatMap((sink) => ['', `### ${sink.word}`, '', ...sinkFlags(sink, registry)]),
    '',
    '### cleanup',
    '',
    flagTable(CLEANUP_FLAGS),
    '',
    '### service',
    '',
    flagTable(SERVICE_FLAGS),
    ...ADMIN_COMMANDS.flatMap(({ word, flags }) => ['', `### ${word}`, '', flagTable(flags)]),
    '',
  ].join('\n');
}

/** The flags of a backend; of one that has the flags of another, only what differs. */
function sinkFlags(sink: SinkCommand, { sinks }: Registry): string[] {
  const names = Object.keys(sink.flags).join();
  const model = sinks.find(({ flags }) => Object.keys(flags).join() === names);
  if (model === undefined || model === sink) return [flagTable(sink.flags)];
  const others = Object.entries(sink.flags).filter(
    ([name, spec]) => rowOf(name, spec) !== rowOf(name, model.flags[name] ?? spec),
  );
  const same = `The flags and defaults of \`${model.word}\``;
  if (others.length === 0) return [`${same}.`];
  return [`${same}, but for:`, '', flagTable(Object.fromEntries(others))];
}

function block(text: string): string {
  return `<!-- compared by: test/cli/docs.test.ts -->\n\`\`\`text\n${text}\`\`\``;
}

function flagTable(table: FlagTable): string {
  const rows = Object.entries(table).map(([name, spec]) => rowOf(name, spec));
  return ['| flag | value | default | |', '| --- | --- | --- | --- |', ...rows].join('\n');
}

function rowOf(name: string, spec: FlagSpec<unknown>): string {
  const names = [name, ...(spec.aliases ?? [])].map((each) => `\`--${each}\``);
  if (spec.short !== undefined) names.unshift(`\`-${spec.short}\``);
  const value = escape(spec.kind.placeholder);
  return `| ${names.join(', ')} | ${value} | ${escape(defaultText(spec) ?? '')} | ${escape(spec.help)} |`;
}

/** For a cell of a table. */
function escape(text: string): string {
  return text.replaceAll('|', '\\|');
}
