import { fieldName, type FieldSchema } from '../../config/fields.ts';
import { hidePasswords } from '../../util/terminal-text.ts';

/**
 * Flags as data. One table per command drives parsing, `--help`, docs/reference/command-line.md and shell completion.
 */

/** Converts the text of a flag to a value, and back. */
export interface FlagKind<T> {
  /** Placeholder of the value in the help text, such as `duration`. */
  readonly placeholder: string;
  /** Allowed words, if there are only a few: for help and completion. */
  readonly choices?: readonly string[];
  /** The value of a flag without one. Such a flag takes a value only with `=`, as in Go. */
  readonly bare?: string;
  /** The format of values in a configuration file. */
  readonly schema: FieldSchema;
  /** Parses the text, or throws an Error with the expected format. */
  parse(this: void, text: string): T;
  format(this: void, value: NonNullable<T>): string;
  /** Merges the values of a repeated flag. Absent: the last one counts, as in Go. */
  merge?(earlier: T, later: T): T;
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
  const text = texts.map((each, index) => `${each}${values[index] ?? ''}`).join('');
  return text.trim().replaceAll(/\s+/g, ' ');
}

/** Describes a flag: its kind, default and what else differs from other flags, then its help text as a template. */
export function flag<T>(
  kind: FlagKind<T>,
  standard: NoInfer<T>,
  more: Partial<FlagSpec<T>> = {},
): (...help: Parameters<typeof prose>) => Ungrouped<T> {
  return (...help) => ({ kind, default: standard, help: prose(...help), ...more });
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

export type Origin =
  | { readonly kind: 'flag'; readonly written: string }
  | { readonly kind: 'env'; readonly variable: string }
  | { readonly kind: 'file'; readonly path: string; readonly line: number; readonly field: string };

/** Names what set a value, for messages: the flag as it was written, the variable, or the field. */
export function labelOf(origin: Origin): string {
  if (origin.kind === 'env') return origin.variable;
  if (origin.kind === 'file') return `${origin.path}:${origin.line}: ${origin.field}`;
  return origin.written;
}

/** The values of several tables that were set, and where, by flag. */
export type RawValues = ReadonlyMap<string, { readonly value: unknown; readonly origin: Origin }>;

/** The environment variable of a flag: `--metrics-bind-address` has KPNG_METRICS_BIND_ADDRESS. */
export function variableOf(flag: string): string {
  return `KPNG_${flag.replaceAll('-', '_').toUpperCase()}`;
}

/** The values that belong to a table; missing flags have their default. */
export function pickValues<Table extends FlagTable>(
  table: Table,
  raw: RawValues,
): FlagValues<Table> {
  const picked = Object.entries(table).map(([name, spec]) => {
    return [fieldName(name), raw.has(name) ? raw.get(name)?.value : spec.default];
  });
  return Object.fromEntries(picked) as FlagValues<Table>;
}

/** A value as on the command line; empty: none. */
export function formatted({ kind }: FlagSpec<unknown>, value: unknown): string {
  return value === undefined || value === null ? '' : kind.format(value);
}

/** `default` as text; empty if there is nothing to show. */
export function defaultText(spec: FlagSpec<unknown>): string {
  return spec.defaultText ?? formatted(spec, spec.default);
}

export interface EffectiveSetting {
  readonly flag: string;
  /** Its name in configuration files. */
  readonly field: string;
  /** As on the command line; empty: no value. */
  readonly text: string;
  /** As in a configuration file. */
  readonly value: JsonValue;
  readonly origin: Origin | { readonly kind: 'default' };
  readonly live: boolean;
}

export type JsonValue = string | number | boolean | null | readonly string[];

const DEFAULT = { kind: 'default' } as const;

/** The settings of the flags of a table, without `--config` itself. */
export function effectiveSettings(table: FlagTable, raw: RawValues): EffectiveSetting[] {
  const flags = Object.entries(table).filter(([flag]) => flag !== 'config');
  return flags.map(([flag, spec]) => {
    const { value, origin } = raw.get(flag) ?? { value: spec.default, origin: DEFAULT };
    const text = hidePasswords(formatted(spec, value));
    const field = fieldName(flag);
    return {
      flag,
      field,
      text,
      value: jsonOf(value, text, spec),
      origin,
      live: spec.live === true,
    };
  });
}

function jsonOf(value: unknown, text: string, { kind }: FlagSpec<unknown>): JsonValue {
  const { type } = kind.schema;
  // Neither would take an empty text.
  if (text === '' && (type === 'integer' || kind.choices !== undefined)) return null;
  if (type === 'integer') return Number(text);
  if (type === 'boolean') return text === 'true';
  if (!Array.isArray(value)) return text;
  const items: readonly unknown[] = value;
  return items.every((item) => typeof item === 'string') ? items : text.split(',');
}

/** `flag`, `environment KPNG_V`, `config.yaml:3 (logging.verbosity)` or `default`. */
export function originText(origin: EffectiveSetting['origin']): string {
  if (origin.kind === 'env') return `environment ${origin.variable}`;
  if (origin.kind === 'file') return `${origin.path}:${origin.line} (${origin.field})`;
  return origin.kind;
}
