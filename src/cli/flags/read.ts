import type { ConfigFile } from '../../config/config-file.ts';
import { KpngError, messageOf } from '../../errors.ts';
import { closest } from '../../util/suggest.ts';
import type { GivenFlag } from './split.ts';
import {
  labelOf,
  variableOf,
  type FlagSpec,
  type FlagTable,
  type Origin,
  type RawValues,
} from './table.ts';

/** Environment variables, as in `process.env`. */
export type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Reads the flags of a table. A flag that is not given takes its value from the environment, then from the configuration file.
 * Throws a usage error that names the flag, the variable or the field.
 */
export function readFlags(
  given: readonly GivenFlag[],
  table: FlagTable,
  env: Environment = {},
  config?: ConfigFile,
): RawValues {
  const values = new Map<string, { value: unknown; origin: Origin }>();
  for (const [name, spec] of Object.entries(table)) {
    for (const { text, written } of given.filter((each) => each.name === name)) {
      if (text === undefined) {
        throw usage(`${written} needs a value: ${written} <${spec.kind.placeholder}>`);
      }
      const value = convert(written, spec, text);
      const earlier = values.get(name);
      const merged = earlier && spec.kind.merge?.(earlier.value, value);
      values.set(name, { value: merged ?? value, origin: { kind: 'flag', written } });
    }
    if (values.has(name)) continue;
    const found = fallback(name, spec, env, config);
    if (found === undefined) continue;
    const { origin } = found;
    const label = labelOf(origin) + (origin.kind === 'env' ? ` (for --${name})` : '');
    values.set(name, { value: convert(label, spec, found.text), origin });
  }
  return values;
}

/** What sets a flag that the command line does not. */
function fallback(
  name: string,
  spec: FlagSpec<unknown>,
  env: Environment,
  config: ConfigFile | undefined,
): { readonly text: string; readonly origin: Origin } | undefined {
  for (const variable of [variableOf(name), spec.env ?? '']) {
    const text = env[variable];
    if (text !== undefined) return { text, origin: { kind: 'env', variable } };
  }
  const setting = config?.settings.get(name);
  if (config === undefined || setting === undefined) return undefined;
  const { text, field, line } = setting;
  return { text, origin: { kind: 'file', path: config.path, line, field } };
}

function convert(label: string, spec: FlagSpec<unknown>, text: string): unknown {
  try {
    return spec.kind.parse(text);
  } catch (error) {
    throw usage(`${label} ${JSON.stringify(text)}: ${messageOf(error)}`);
  }
}

/** An error of the command line. */
export function usage(message: string): KpngError {
  return new KpngError('KPNG_USAGE', message);
}

/** An environment variable that no flag reads, and the likely intended one. */
export interface MisspeltVariable {
  readonly variable: string;
  readonly meant: string;
}

/** The variables that Kubernetes sets in pods for a Service whose name begins with `kpng`. */
const SERVICE_LINK = /^KPNG_(.*_)?(SERVICE_(HOST|PORT)(_.*)?|PORT(_\d+_(TCP|UDP|SCTP)(_.*)?)?)$/;

/** Variables with nearly the name of a flag; `flags`: those of all commands. */
export function misspeltVariables(env: Environment, flags: readonly string[]): MisspeltVariable[] {
  const known = flags.map(variableOf);
  return Object.keys(env).flatMap((variable) => {
    if (!variable.startsWith('KPNG_') || known.includes(variable)) return [];
    if (SERVICE_LINK.test(variable)) return [];
    const meant = closest(variable, known);
    return meant === undefined ? [] : [{ variable, meant }];
  });
}
