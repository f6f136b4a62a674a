import type { ConfigFile } from '../config/config-file.ts';
import type { ReadDocuments } from '../config/documents.ts';
import { fieldName, type Field, type Fields } from '../config/field.ts';
import { invalidConfig } from '../config/problem.ts';
import { readConfigText } from '../config/read.ts';
import { resolveConfig, type Resolved } from '../config/resolve.ts';
import type { Registry } from './command.ts';
import { GLOBAL_FLAGS } from './flags/global.ts';
import type { FlagSpec } from './flags/table.ts';

/** Reads a configuration file. Rejects with KPNG_CONFIG_READ or KPNG_CONFIG_INVALID. */
export async function loadConfig(path: string, registry: Registry): Promise<ConfigFile> {
  return parseConfig(path, await readConfigText(path), registry);
}

/** Parses a configuration file, from its text or its parsed documents. Throws KPNG_CONFIG_INVALID. */
export function parseConfig(
  path: string,
  content: string | ReadDocuments,
  registry: Registry,
): ConfigFile {
  const resolved = resolveConfig(path, content, configFields(registry));
  if (resolved.ok) return resolved.config;
  throw invalidConfig(path, resolved.problems);
}

/** Like `parseConfig`, but returns every problem. */
export function resolveText(path: string, text: string, registry: Registry): Resolved {
  return resolveConfig(path, text, configFields(registry));
}

/** A flag that a file may set. */
export interface ConfigurableFlag {
  readonly flag: string;
  readonly spec: FlagSpec<unknown>;
}

/** Every flag that a configuration file may set, in the order of docs/reference/command-line.md. */
export function configurableFlags({ sources, sinks, others }: Registry): ConfigurableFlag[] {
  const commands = [...sources, ...sinks, ...others.filter(({ word }) => word === 'cleanup')];
  const found = new Map<string, FlagSpec<unknown>>();
  for (const table of [GLOBAL_FLAGS, ...commands.map(({ flags }) => flags)]) {
    for (const [flag, spec] of Object.entries<FlagSpec<unknown>>(table)) {
      // A file would name itself with --config.
      if (flag !== 'config' && !found.has(flag)) found.set(flag, spec);
    }
  }
  return [...found].map(([flag, spec]) => ({ flag, spec }));
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
