/** Command lines as the program reads them, in this process. */
import type { BoundCommand } from '../../src/cli/command.ts';
import { parse, parseRun } from '../../src/cli/parse.ts';
import type { UserspaceOptions } from '../../src/cli/sinks/userspace-options.ts';
import { readFlags } from '../../src/cli/flags/read.ts';
import type { FlagTable, FlagValues } from '../../src/cli/flags/table.ts';
import type { ConfigFile } from '../../src/config/file.ts';
import { KpngError } from '../../src/errors.ts';

export function words(line: string): string[] {
  return line.split(' ').filter((word) => word !== '');
}

type Rest = [env?: Record<string, string>, config?: ConfigFile];

/** What a command line means. Throws if it is refused. */
export function run(line: string, ...rest: Rest): BoundCommand {
  return parseRun(words(line), ...rest);
}

/** The flags that were set: on the command line, in the environment or in a file. */
export function given({ settings }: BoundCommand): string[] {
  return settings.flatMap(({ flag, origin }) => (origin.text === 'default' ? [] : [flag]));
}

/** The message of a command line that has to be refused. */
export function refused(line: string, ...rest: Rest): string {
  try {
    parse(words(line), ...rest);
  } catch (error) {
    if (error instanceof KpngError && error.code === 'KPNG_USAGE') return error.message;
    throw error;
  }
  throw new Error(`${line}: not refused`);
}

/** The options of to-userspace, or another backend with the same. */
export function userspaceOptions(flags: string, backend = 'to-userspace'): UserspaceOptions {
  return run(`local ${backend} ${flags}`).sink.options as UserspaceOptions;
}

export function defaultsOf<Table extends FlagTable>(table: Table): FlagValues<Table> {
  return readFlags([], table).values;
}
