import { OWN_API_VERSION, OWN_KIND } from '../config/field.ts';
import { problemText } from '../config/problem.ts';
import { table, type Column } from './admin/layout.ts';
import { PROGRAM, type BoundCommand, type Streams } from './command.ts';
import type { OutputForm } from './flags/admin.ts';
import { originText, type EffectiveSetting } from './settings.ts';

/** Prints the settings of a command, and where each comes from. Returns the exit code. */
export function printConfig(
  { output, settings, command, ...bound }: BoundCommand & { readonly output: OutputForm },
  path: string,
  { stdout, stderr }: Streams,
): 0 {
  const warnings = [
    ...bound.warnings.map((warning) => problemText(path, warning)),
    ...bound.misspelt.map(({ variable, meant }) => `unknown ${variable}; did you mean ${meant}?`),
    ...bound.ignored.map(({ flags, why }) => `${flags.join(' ')} has no effect: ${why}`),
  ];
  for (const warning of warnings) stderr.write(`${PROGRAM}: warning: ${warning}\n`);
  if (output === 'json') stdout.write(asJson(settings, command));
  else stdout.write(output === 'yaml' ? asYaml(settings, command) : asTable(settings));
  return 0;
}

function asTable(settings: readonly EffectiveSetting[]): string {
  const columns: Column<EffectiveSetting>[] = [
    { title: 'SETTING', cell: ({ flag }) => `--${flag}` },
    { title: 'VALUE', cell: ({ text = '' }) => (text === '' ? '-' : text) },
    { title: 'FROM', cell: ({ origin }) => originText(origin) },
  ];
  return `${table(columns, settings).join('\n')}\n`;
}

function asJson(settings: readonly EffectiveSetting[], command: readonly string[]): string {
  const list = settings.map(({ flag, field, value, origin, live }) => {
    return { flag, field, value, from: originText(origin), live };
  });
  return `${JSON.stringify({ command: command.join(' '), settings: list }, null, 2)}\n`;
}

/** A configuration file with the same settings, and their origins as comments. */
function asYaml(settings: readonly EffectiveSetting[], command: readonly string[]): string {
  const lines = settings.map(({ field, value, origin }) => {
    // JSON is YAML.
    return `${field}: ${JSON.stringify(value)} # ${originText(origin)}\n`;
  });
  return [
    `apiVersion: ${OWN_API_VERSION}\n`,
    `kind: ${OWN_KIND}\n`,
    `command: ${command.join(' ')}\n`,
    ...lines,
  ].join('');
}
