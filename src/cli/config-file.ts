import { type ConfigFile, invalidConfig } from '../config/config-file.ts';
import type { ReadDocuments } from '../config/documents.ts';
import { readConfigText } from '../config/read.ts';
import { resolveConfig } from '../config/resolve.ts';
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
  const resolved = resolveConfig(path, content, configurableFlags(registry));
  if (resolved.ok) return resolved.config;
  throw invalidConfig(path, resolved.problems);
}

/** Every flag that a configuration file may set, by name, in the order of docs/reference/command-line.md. */
export function configurableFlags(registry: Registry): ReadonlyMap<string, FlagSpec<unknown>> {
  const { sources, sinks, others } = registry;
  const found = new Map<string, FlagSpec<unknown>>(Object.entries(GLOBAL_FLAGS));
  // A file would name itself with it.
  found.delete('config');
  for (const { flags } of [
    ...sources,
    ...sinks,
    ...others.filter(({ word }) => word === 'cleanup'),
  ]) {
    for (const [flag, spec] of Object.entries(flags)) if (!found.has(flag)) found.set(flag, spec);
  }
  return found;
}
