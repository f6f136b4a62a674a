import type { FieldSchema } from '../../config/fields.ts';
import { KpngError } from '../../errors.ts';

/**
 * Flags as data. One table per command drives parsing, `--help`, docs/reference/command-line.md and shell completion.
 */

/** Converts the text of a flag to a value, and back. */
export interface FlagKind<T> {
  /** Placeholder of the value in the help text, such as `duration`. */
  readonly placeholder: string;
  /** The format of values in a configuration file. */
  readonly schema: FieldSchema;
  /** Parses the text, or throws an Error with the expected format. */
  parse(this: void, text: string): T;
  format(this: void, value: NonNullable<T>): string;
  /** Whether the lists of a repeated flag are joined. Absent: the last one counts, as in Go. */
  readonly joins?: true;
}

/** Whether a flag alone means `true`. Such a flag takes a value only with `=`, as in Go. */
export function isSwitch({ schema }: FlagKind<unknown>): boolean {
  return schema.type === 'boolean';
}

export interface FlagSpec<T> {
  readonly kind: FlagKind<T>;
  readonly default: T;
  /** One or two plain sentences. */
  readonly help: string;
  readonly group: string;
  /** One letter, for a flag such as `-i`. */
  readonly short?: string;
  readonly aliases?: readonly string[];
  /**
   * Another environment variable, which is read if neither the flag nor its own variable, such as
   * KPNG_METRICS_BIND_ADDRESS, is given.
   */
  readonly env?: string;
  /** Whether a change in the configuration file takes effect while the program runs. */
  readonly live?: true;
  /** The default in the help text, when it differs from host to host. */
  readonly defaultText?: string;
}

export type FlagTable = Readonly<Record<string, FlagSpec<unknown>>>;

type Ungrouped<T> = Omit<FlagSpec<T>, 'group'>;

/** A text, wherever its lines break. */
export function prose(
  texts: TemplateStringsArray,
  ...values: readonly (string | number)[]
): string {
  return String.raw({ raw: texts }, ...values)
    .trim()
    .replaceAll(/\s+/g, ' ');
}

/** Describes a flag: its kind, default and what else differs from other flags, then its help text as a template. */
export function flag<T>(kind: FlagKind<T>, value: NoInfer<T>, more: Partial<FlagSpec<T>> = {}) {
  return (...help: Parameters<typeof prose>): Ungrouped<T> => {
    return { kind, default: value, help: prose(...help), ...more };
  };
}

export function group<Table extends Readonly<Record<string, Ungrouped<unknown>>>>(
  heading: string,
  table: Table,
): { readonly [Name in keyof Table]: Table[Name] & { readonly group: string } } {
  const entries = Object.entries(table).map(([name, spec]) => [name, { ...spec, group: heading }]);
  return Object.fromEntries(entries) as ReturnType<typeof group<Table>>;
}

/** The values of a table's flags, by field name: `nodeName` for `--node-name`. */
export type FlagValues<Table extends FlagTable> = {
  readonly [Name in keyof Table as FieldName<Name & string>]: Table[Name]['default'];
};

type FieldName<Flag extends string> = Flag extends `${infer First}-${infer More}`
  ? `${First}${Capitalize<FieldName<More>>}`
  : Flag;

/** The environment variable of a flag: `--metrics-bind-address` has KPNG_METRICS_BIND_ADDRESS. */
export function variableOf(flag: string): string {
  return `KPNG_${flag.replaceAll('-', '_').toUpperCase()}`;
}

/** A value as on the command line; empty: none. */
export function formatted({ kind }: FlagSpec<unknown>, value: unknown): string {
  return value === undefined || value === null ? '' : kind.format(value);
}

/** `default` as text; empty if there is nothing to show. */
export function defaultText(spec: FlagSpec<unknown>): string {
  return spec.defaultText ?? formatted(spec, spec.default);
}

export function usage(message: string): KpngError {
  return new KpngError('KPNG_USAGE', message);
}

/** Throws if more than `most` words follow a command. */
export function atMost(most: number, operands: readonly string[], command: string): void {
  if (operands.length <= most) return;
  const after = [command, ...operands][most] ?? command;
  const words = operands.slice(most).map((word) => JSON.stringify(word));
  throw usage(`only flags may follow ${after}: ${words.join(' ')}`);
}
