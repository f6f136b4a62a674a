import { fieldName } from '../config/field.ts';
import type { FlagSpec, FlagTable, Origin, RawValues } from './flags/table.ts';

export interface EffectiveSetting {
  readonly flag: string;
  /** Its name in configuration files. */
  readonly field: string;
  /** As on the command line; undefined: no value. */
  readonly text: string | undefined;
  /** As in a configuration file. */
  readonly value: JsonValue;
  readonly origin: Origin | { readonly kind: 'default' };
  readonly live: boolean;
}

export type JsonValue = string | number | boolean | null | readonly string[];

const DEFAULT = { kind: 'default' } as const;

/** The settings of the flags of a table, without `--config` itself. */
export function effectiveSettings(table: FlagTable, raw: RawValues): EffectiveSetting[] {
  return Object.entries(table)
    .filter(([flag]) => flag !== 'config')
    .map(([flag, spec]): EffectiveSetting => {
      const { value, origin } = raw.get(flag) ?? { value: spec.default, origin: DEFAULT };
      const text = textOf(value, spec);
      return {
        flag,
        field: fieldName(flag),
        text,
        value: jsonOf(value, text, spec),
        origin,
        live: spec.live === true,
      };
    });
}

function textOf(value: unknown, { kind }: FlagSpec<unknown>): string | undefined {
  const text: unknown = kind.format(value);
  return typeof text === 'string' ? withoutPassword(text) : undefined;
}

/** Settings are visible to any admin client; a URL may contain secrets. */
function withoutPassword(text: string): string {
  return text.replace(/(\/\/[^/:@\s]*):[^/@\s]*@/, '$1:***@');
}

function jsonOf(value: unknown, text: string | undefined, { kind }: FlagSpec<unknown>): JsonValue {
  if (text === undefined) return null;
  const { type } = kind.schema;
  if (type === 'integer') return text === '' ? null : Number(text);
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
