import { existsSync } from 'node:fs';
import { isSea } from 'node:sea';
import { join, dirname } from 'node:path';

/** What starts this program again. */
export interface OwnProgram {
  readonly program: string;
  /** Arguments that come before all others. */
  readonly args: readonly string[];
  readonly directory: string;
}

/** An executable starts itself; from source or dist/ it is Node with the script that was started. */
export function ownProgram(
  execPath: string = process.execPath,
  script: string | undefined = process.argv[1],
  alone: boolean = isSea(),
): OwnProgram {
  const directory = dirname(execPath);
  return {
    program: execPath,
    args: alone || script === undefined ? [] : ['--disable-sigusr1', script],
    directory,
  };
}

/** NSSM beside the program, else by its name only, which is looked up on the PATH. */
export function findNssm(
  directory: string,
  exists: (path: string) => boolean = existsSync,
): string {
  const beside = join(directory, 'nssm.exe');
  return exists(beside) ? beside : 'nssm';
}
