import type { Writable } from 'node:stream';
import { OWN_API_VERSION, OWN_KIND } from '../config/fields.ts';
import { problemText, readConfigText, resolveConfig } from '../config/file.ts';
import { KpngError } from '../errors.ts';
import { DEFAULT_FILE_LIMITS } from '../file/limits.ts';
import { StateParser } from '../file/parse.ts';
import { formatProblems } from '../file/problem.ts';
import { STATE_FILE } from '../file/source.ts';
import { readContent } from '../util/read-content.ts';
import { escapeControls, escapeLines } from '../util/terminal-text.ts';
import { print, counted, table, type Column, type OutputForm } from './admin/layout.ts';
import { PROGRAM, type OtherLine, type Streams, type BoundCommand } from './command.ts';
import { unknownNode } from './flags/backend.ts';
import type { EffectiveSetting } from './flags/read.ts';

/** Reports all errors of a configuration file. Returns the exit code. */
export function validateConfig(
  path: string,
  { fields, parseRun }: Pick<OtherLine, 'fields' | 'parseRun'>,
  output: Streams,
): Promise<0 | 2> {
  return validate(path, output, async (report) => {
    const resolved = resolveConfig(path, await readConfigText(path), fields());
    if (!resolved.ok) {
      const lines = resolved.problems.map((each) => escapeControls(problemText(path, each)));
      throw new KpngError('KPNG_CONFIG_INVALID', lines.join('\n'));
    }
    const { config } = resolved;
    const { warnings } = config.command === undefined ? config : parseRun([], config);
    for (const warning of warnings) report(`warning: ${problemText(path, warning)}`);
    return '.';
  });
}

/** Reports all errors of a state file; `nodeName`: of a node that it should have. Returns the exit code. */
export function validateState(path: string, nodeName: string, output: Streams): Promise<0 | 2> {
  return validate(path, output, async (report) => {
    const content = await readContent(path, DEFAULT_FILE_LIMITS.maxFileBytes, STATE_FILE);
    if (content instanceof KpngError) throw content;
    const result = new StateParser().parse(content.bytes);
    if (!result.ok) {
      throw new KpngError('KPNG_STATE_FILE_INVALID', formatProblems(path, result.errors));
    }
    const { services, nodesText = '[]', newWarnings } = result;
    const names = (JSON.parse(nodesText) as { name: string }[]).map(({ name }) => name).sort();
    if (nodeName !== '' && !names.includes(nodeName)) {
      throw unknownNode(nodeName, names, `state file ${path}`);
    }
    if (newWarnings.total > 0) {
      for (const line of formatProblems(path, newWarnings).split('\n')) report(`warning: ${line}`);
    }
    return `: ${counted(services, 'service')}, ${counted(names.length, 'node')}`;
  });
}

/** `check` reports warnings and resolves with what follows `FILE is valid`. Rejects with a line for each error. */
async function validate(
  path: string,
  { stdout, stderr }: Streams,
  check: (report: (text: string) => void) => Promise<string>,
): Promise<0 | 2> {
  const report = (text: string): void => printLine(stderr, `${PROGRAM}: ${text}`);
  try {
    printLine(stdout, `${path} is valid${await check(report)}`);
    return 0;
  } catch (error) {
    if (!(error instanceof KpngError)) throw error;
    // Only the lists of errors have several lines; a path may have a line break.
    const lines = error.code.endsWith('_INVALID') ? error.message.split('\n') : [error.message];
    for (const line of lines) report(`${line} (${error.code})`);
    return 2;
  }
}

/** Keys and values of files must not control the terminal. */
function printLine(stream: Writable, text: string): void {
  stream.write(`${escapeControls(text)}\n`);
}

const COLUMNS: Column<EffectiveSetting>[] = [
  { title: 'SETTING', cell: ({ flag }) => `--${flag}` },
  { title: 'VALUE', cell: ({ text }) => text || '-' },
  { title: 'FROM', cell: ({ origin }) => origin.text },
];

/** Prints the settings of a command, and where each comes from. Returns the exit code. */
export async function printConfig(
  { settings, command, ...bound }: BoundCommand,
  output: OutputForm,
  path: string,
  { stdout, stderr }: Streams,
): Promise<0> {
  const warnings = [
    ...bound.warnings.map((warning) => problemText(path, warning)),
    ...bound.misspelt.map(({ variable, meant }) => `unknown ${variable}; did you mean ${meant}?`),
    ...bound.ignored.map(({ flags, why }) => `${flags.join(' ')} has no effect: ${why}`),
  ];
  for (const warning of warnings) printLine(stderr, `${PROGRAM}: warning: ${warning}`);
  if (output === 'yaml') {
    stdout.write(escapeLines(asYaml(settings, command)));
    return 0;
  }
  const list = settings.map(({ flag, field, value, origin, live }) => {
    return { flag, field, value, from: origin.text, live };
  });
  const value = { command: command.join(' '), settings: list };
  await print(value, table(COLUMNS, settings), output, stdout);
  return 0;
}

/** A configuration file with the same settings, and their origins as comments. */
function asYaml(settings: readonly EffectiveSetting[], command: readonly string[]): string {
  const lines = settings.map(({ field, value, origin }) => {
    // JSON is YAML.
    return `${field}: ${JSON.stringify(value)} # ${origin.text}\n`;
  });
  return [
    `apiVersion: ${OWN_API_VERSION}\n`,
    `kind: ${OWN_KIND}\n`,
    `command: ${command.join(' ')}\n`,
    ...lines,
  ].join('');
}
