/** Command lines as the program reads them, in this process. */
import { parse, type Invocation } from '../../src/cli/parse.ts';
import type { UserspaceOptions } from '../../src/cli/sinks/userspace-options.ts';
import type { ConfigFile } from '../../src/config/resolve.ts';

export type Run = Invocation & { kind: 'run' };

export function words(line: string): string[] {
  return line.split(' ').filter((word) => word !== '');
}

/** What a command line means. Throws if it is refused. */
export function run(line: string, env: Record<string, string> = {}, config?: ConfigFile): Run {
  const invocation = parse(words(line), env, config);
  if (invocation.kind === 'run') return invocation;
  throw invocation.kind === 'usage-error' ? invocation.error : new Error(invocation.kind);
}

/** The message of a command line that has to be refused. */
export function refused(
  line: string,
  env: Record<string, string> = {},
  config?: ConfigFile,
): string {
  const invocation = parse(words(line), env, config);
  if (invocation.kind !== 'usage-error') throw new Error(`${line}: ${invocation.kind}`);
  if (!/^KPNG_(?:USAGE|CONFIG_)/.test(invocation.error.code)) throw invocation.error;
  return invocation.error.message;
}

/** The options of to-userspace, or another backend with the same. */
export function userspaceOptions(flags: string, backend = 'to-userspace'): UserspaceOptions {
  return run(`local ${backend} ${flags}`).sink.options as UserspaceOptions;
}
