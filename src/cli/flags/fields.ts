import { fieldName, type Field, type Fields } from '../../config/field.ts';
import type { Registry } from '../command.ts';
import { GLOBAL_FLAGS } from './global.ts';
import type { FlagSpec, FlagTable } from './table.ts';

/** Flags that a file cannot set: it would name itself. */
const NOT_IN_FILES: ReadonlySet<string> = new Set(['config']);

/** A flag that a file may set, and which commands have it. */
export interface ConfigurableFlag {
  readonly flag: string;
  readonly spec: FlagSpec<unknown>;
  /** Words of the commands; empty: all. */
  readonly commands: readonly string[];
}

/** Every flag that a configuration file may set, in the order of docs/reference/command-line.md. */
export function configurableFlags({ sources, sinks, others }: Registry): ConfigurableFlag[] {
  const tables: [string | undefined, FlagTable][] = [
    [undefined, GLOBAL_FLAGS],
    ...[...sources, ...sinks, ...others.filter(({ word }) => word === 'cleanup')].map(
      ({ word, flags }): [string, FlagTable] => [word, flags],
    ),
  ];
  const found = new Map<string, { spec: FlagSpec<unknown>; commands: string[] }>();
  for (const [word, table] of tables) {
    for (const [flag, spec] of Object.entries(table)) {
      if (NOT_IN_FILES.has(flag)) continue;
      const known = found.get(flag) ?? { spec, commands: [] };
      if (word !== undefined) known.commands.push(word);
      found.set(flag, known);
    }
  }
  return [...found].map(([flag, { spec, commands }]) => ({ flag, spec, commands }));
}

/** The fields of configuration files. */
export function configFields(registry: Registry): Fields {
  const fields = configurableFlags(registry).map(({ flag, spec: { kind } }): Field => {
    return {
      name: fieldName(flag),
      flag,
      schema: kind.schema,
      check: (text) => {
        kind.parse(text);
      },
    };
  });
  return new Map(fields.map((field) => [field.name, field]));
}
