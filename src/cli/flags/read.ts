import { Command, CommanderError, Option } from 'commander';
import { KpngError, messageOf } from '../../errors.ts';
import type { FlagSpec, FlagTable, RawValues } from './table.ts';

/** Environment variables, as in `process.env`. */
export type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Reads flags in the form `--name=value` by a table; what is not given comes from the environment,
 * for flags that have a variable. Throws a usage error that names the flag.
 */
export function readFlags(
  flags: readonly string[],
  table: FlagTable,
  env: Environment = {},
): RawValues {
  const values = new Map<string, unknown>();
  const given = new Set<string>();
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
      const merged = given.has(name) ? spec.kind.merge?.(values.get(name), value) : undefined;
      values.set(name, merged ?? value);
      given.add(name);
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
    const text = spec.env === undefined ? undefined : env[spec.env];
    if (text === undefined || given.has(name)) continue;
    values.set(name, convert(`${spec.env} (for --${name})`, spec, text));
    given.add(name);
  }
  return { values, given };
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
