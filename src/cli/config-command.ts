import type { Writable } from 'node:stream';
import type { ConfigFile } from '../config/config-file.ts';
import { OWN_API_VERSION, OWN_KIND } from '../config/own-kind.ts';
import { problemText } from '../config/problem.ts';
import { readConfigText } from '../config/read.ts';
import { KpngError } from '../errors.ts';
import { resolveText } from './config-file.ts';
import { PROGRAM } from './help.ts';
import { parse, type BoundCommand, type OutputForm } from './parse.ts';
import { REGISTRY } from './registry.ts';
import { originText, type EffectiveSetting } from './settings.ts';

interface Streams {
  readonly stdout: Writable;
  readonly stderr: Writable;
}

/** Says everything that is wrong with a file, and returns the exit code: 0, or 2. */
export async function validateConfig(path: string, { stdout, stderr }: Streams): Promise<0 | 2> {
  const refuse = (lines: readonly string[], code: string): 2 => {
    stderr.write(lines.map((line) => `${PROGRAM}: ${line} (${code})\n`).join(''));
    return 2;
  };
  let text: string;
  try {
    text = await readConfigText(path);
  } catch (error) {
    if (error instanceof KpngError) return refuse([error.message], error.code);
    throw error;
  }
  const resolved = resolveText(path, text);
  if (!resolved.ok) {
    return refuse(
      resolved.problems.map((problem) => problemText(path, problem)),
      'KPNG_CONFIG_INVALID',
    );
  }
  const { config } = resolved;
  const bound = config.command === undefined ? undefined : tryCommand(config);
  if (bound instanceof KpngError) return refuse([bound.message], bound.code);
  for (const warning of bound ?? config.warnings) {
    stderr.write(`${PROGRAM}: warning: ${problemText(path, warning)}\n`);
  }
  stdout.write(`${path} is valid.\n`);
  return 0;
}

/** What the command of a file comes to: its warnings, or an error of settings that do not go together. */
function tryCommand(config: ConfigFile): BoundCommand['warnings'] | KpngError {
  const invocation = parse([], {}, REGISTRY, config);
  if (invocation.kind === 'usage-error') return invocation.error;
  return invocation.kind === 'run' ? invocation.warnings : config.warnings;
}

/** Prints what a command is set to, and where each value comes from. */
export function printConfig(
  { output, settings, command, warnings, misspelt }: BoundCommand & { readonly output: OutputForm },
  path: string,
  { stdout, stderr }: Streams,
): 0 {
  for (const warning of warnings) {
    stderr.write(`${PROGRAM}: warning: ${problemText(path, warning)}\n`);
  }
  for (const { variable, meant } of misspelt) {
    stderr.write(`${PROGRAM}: warning: ${variable} is not known; did you mean ${meant}?\n`);
  }
  if (output === 'json') stdout.write(asJson(settings, command));
  else stdout.write(output === 'yaml' ? asYaml(settings, command) : asTable(settings));
  return 0;
}

function asTable(settings: readonly EffectiveSetting[]): string {
  const rows = settings.map(({ flag, text = '', origin }) => {
    return [`--${flag}`, text === '' ? '-' : text, originText(origin)];
  });
  const all = [['SETTING', 'VALUE', 'FROM'], ...rows];
  const widths = [0, 1].map((column) => Math.max(...all.map((row) => row[column]?.length ?? 0)));
  return all
    .map((row) => row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  '))
    .map((line) => `${line.trimEnd()}\n`)
    .join('');
}

function asJson(settings: readonly EffectiveSetting[], command: readonly string[]): string {
  const list = settings.map(({ flag, field, value, origin, live }) => {
    return { flag, field, value, from: originText(origin), live };
  });
  return `${JSON.stringify({ command: command.join(' '), settings: list }, null, 2)}\n`;
}

/** A file that sets the same, with where it comes from in comments. */
function asYaml(settings: readonly EffectiveSetting[], command: readonly string[]): string {
  const lines = settings.map(({ field, value, origin }) => {
    // JSON is YAML, whatever a text holds.
    return `${field}: ${JSON.stringify(value)} # ${originText(origin)}\n`;
  });
  return [
    `apiVersion: ${OWN_API_VERSION}\n`,
    `kind: ${OWN_KIND}\n`,
    `command: ${command.join(' ')}\n`,
    ...lines,
  ].join('');
}
