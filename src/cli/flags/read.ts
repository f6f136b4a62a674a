import { Command, CommanderError, Option } from 'commander';
import type { ConfigFile } from '../../config/config-file.ts';
import { KpngError, messageOf } from '../../errors.ts';
import { variableOf, type FlagSpec, type FlagTable, type Origin, type RawValues } from './table.ts';

/** Environment variables, as in `process.env`. */
export type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Reads flags in the form `--name=value` by a table. What is not given comes from the environment, then
 * from the configuration file. Throws a usage error that names the flag, the variable or the field.
 */
export function readFlags(
  flags: readonly string[],
  table: FlagTable,
  env: Environment = {},
  config?: ConfigFile,
): RawValues {
  const values = new Map<string, unknown>();
  const origins = new Map<string, Origin>();
  const command = new Command()
    .exitOverride()
    .helpOption(false)
    .configureOutput({ writeOut: () => {}, writeErr: () => {} });
  for (const [name, { kind }] of Object.entries(table)) {
    // Commander would take the next flag for the value.
    if (!flags.includes(`--${name}`)) continue;
    throw new KpngError('KPNG_USAGE', `--${name} needs a value: --${name} <${kind.placeholder}>`);
  }
  for (const [name, spec] of Object.entries(table)) {
    const option = new Option(`--${name} <value>`);
    option.argParser((text) => {
      const value = convert(`--${name}`, spec, text);
      const merged = origins.has(name) ? spec.kind.merge?.(values.get(name), value) : undefined;
      values.set(name, merged ?? value);
      origins.set(name, { kind: 'flag' });
    });
    command.addOption(option);
  }
  try {
    command.parse(flags, { from: 'user' });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    throw new KpngError('KPNG_USAGE', plain(error.message));
  }
  for (const [name, spec] of Object.entries(table)) {
    if (origins.has(name)) continue;
    const found = inEnvironment(name, spec, env) ?? inFile(name, config);
    if (found === undefined) continue;
    const { text, label, origin } = found;
    values.set(name, convert(label, spec, text));
    origins.set(name, origin);
  }
  return { values, given: new Set(origins.keys()), origins };
}

interface Found {
  readonly text: string;
  readonly label: string;
  readonly origin: Origin;
}

function inEnvironment(name: string, spec: FlagSpec<unknown>, env: Environment): Found | undefined {
  for (const variable of [variableOf(name), spec.env]) {
    const text = variable === undefined ? undefined : env[variable];
    if (text === undefined || variable === undefined) continue;
    return { text, label: `${variable} (for --${name})`, origin: { kind: 'env', variable } };
  }
  return undefined;
}

function inFile(name: string, config: ConfigFile | undefined): Found | undefined {
  const setting = config?.settings.get(name);
  if (config === undefined || setting === undefined) return undefined;
  const { text, field, line } = setting;
  const { path } = config;
  return { text, label: `${path}:${line}: ${field}`, origin: { kind: 'file', path, line, field } };
}

function convert(label: string, spec: FlagSpec<unknown>, text: string): unknown {
  try {
    return spec.kind.parse(text);
  } catch (error) {
    const reason = messageOf(error);
    throw new KpngError('KPNG_USAGE', `${label} ${JSON.stringify(text)}: ${reason}`);
  }
}

/** One line in our own style, of what commander says. */
function plain(message: string): string {
  return message
    .replace(/^error: /, '')
    .replace(/ <value>/g, '')
    .replaceAll('\n', ' ');
}
