import type { ConfigFile } from '../config/config-file.ts';
import { invalidConfig } from '../config/problem.ts';
import { readConfigText } from '../config/read.ts';
import { resolveConfig, type Resolved } from '../config/resolve.ts';
import { KpngError } from '../errors.ts';
import { configFields } from './flags/fields.ts';
import { REGISTRY } from './registry.ts';

/** Reads and understands a configuration file; an error has KPNG_CONFIG_READ or KPNG_CONFIG_INVALID. */
export async function loadConfig(path: string): Promise<ConfigFile | KpngError> {
  try {
    return understand(path, await readConfigText(path));
  } catch (error) {
    if (error instanceof KpngError) return error;
    throw error;
  }
}

/** Understands the text of a configuration file. */
export function understand(path: string, text: string): ConfigFile | KpngError {
  const resolved = resolveText(path, text);
  return resolved.ok ? resolved.config : invalidConfig(path, resolved.problems);
}

/** The same, with every problem. */
export function resolveText(path: string, text: string): Resolved {
  return resolveConfig(path, text, configFields(REGISTRY));
}
