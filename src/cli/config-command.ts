import type { Writable } from 'node:stream';
import { OWN_API_VERSION, OWN_KIND } from '../config/own-kind.ts';
import { problemText } from '../config/problem.ts';
import { readConfigText } from '../config/read.ts';
import { KpngError } from '../errors.ts';
import { table, type Column } from './admin/layout.ts';
import { PROGRAM, type BoundCommand, type OtherLine } from './command.ts';
import { resolveText } from './config-file.ts';
import type { OutputForm } from './flags/admin.ts';
import { originText, type EffectiveSetting } from './settings.ts';

interface Output {
  readonly stdout: Writable;
  readonly stderr: Writable;
}

/** Reports all errors of a file. Returns the exit code. */
export async function validateConfig(
  path: string,
  { registry, parseRun }: Pick<OtherLine, 'registry' | 'parseRun'>,
  { stdout, stderr }: Output,
): Promise<0 | 2> {
  const print = (text: string): void => void stderr.write(`${PROGRAM}: ${text}\n`);
  try {
    const resolved = resolveText(path, await readConfigText(path), registry);
    if (!resolved.ok) {
      for (const each of resolved.problems) {
        print(`${problemText(path, each)} (KPNG_CONFIG_INVALID)`);
      }
      return 2;
    }
    const { config } = resolved;
    const { warnings } = config.command === undefined ? config : parseRun([], config);
    for (const warning of warnings) print(`warning: ${problemText(path, warning)}`);
    stdout.write(`${path} is valid.\n`);
    return 0;
  } catch (error) {
    if (!(error instanceof KpngError)) throw error;
    print(`${error.message} (${error.code})`);
    return 2;
  }
}

/** Prints the settings of a command, and where each comes from. Returns the exit code. */
export function printConfig(
  { output, settings, command, ...bound }: BoundCommand & { readonly output: OutputForm },
  path: string,
  { stdout, stderr }: Output,
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
