import type { ConfigFile } from '../config/config-file.ts';
import { invalidConfig } from '../config/problem.ts';
import { readConfigText } from '../config/read.ts';
import type { ReadDocuments } from '../config/documents.ts';
import { resolveConfig, type Resolved } from '../config/resolve.ts';
import type { Registry } from './command.ts';
import { configFields } from './flags/fields.ts';

/** Reads a configuration file. Rejects with KPNG_CONFIG_READ or KPNG_CONFIG_INVALID. */
export async function loadConfig(path: string, registry: Registry): Promise<ConfigFile> {
  return understand(path, await readConfigText(path), registry);
}

/** Understands a configuration file, its text or what was read of it. Throws KPNG_CONFIG_INVALID. */
export function understand(
  path: string,
  content: string | ReadDocuments,
  registry: Registry,
): ConfigFile {
  const resolved = resolveConfig(path, content, configFields(registry));
  if (resolved.ok) return resolved.config;
  throw invalidConfig(path, resolved.problems);
}

/** The same, with every problem. */
export function resolveText(path: string, text: string, registry: Registry): Resolved {
  return resolveConfig(path, text, configFields(registry));
}
