import type { Writable } from 'node:stream';
import { KpngError } from '../errors.ts';
import { systemExec, type Exec } from '../portal/exec.ts';
import { removeNftables } from '../portal/nftables/tool.ts';
import { PROGRAM } from './help.ts';

export interface CleanupOptions {
  readonly table: string;
  readonly stdout: Writable;
  readonly stderr: Writable;
  readonly exec?: Exec;
}

/** Removes the packet rules that a proxy has left, and returns the exit code. May be done twice. */
export async function cleanup(options: CleanupOptions): Promise<0 | 1> {
  const { table, stdout, stderr, exec = systemExec } = options;
  try {
    await removeNftables(exec, table);
  } catch (error) {
    if (!(error instanceof KpngError)) throw error;
    stderr.write(`${PROGRAM}: ${error.message} (${error.code})\n`);
    return 1;
  }
  stdout.write(`There is no nftables table inet ${table} any more.\n`);
  return 0;
}
