/** Runs the program netsh. It has no way to read commands from its input, so a script is a file. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Family } from '../../util/family.ts';
import { ADDRESS_WRITE_MS } from '../bounds.ts';
import { ExecError, type Exec } from '../exec.ts';
import { MAX_OUTPUT, NETSH_TIMEOUT_MS } from './bounds.ts';
import { listArgs, scriptLine } from './commands.ts';
import { netshFailure } from './failure.ts';
import { readIpv4Listing, readIpv6Listing } from './listing.ts';

/** The addresses of an interface, of one family. Rejects with KPNG_PORTAL_*, also when there is none. */
export async function listAddresses(exec: Exec, name: string, family: Family): Promise<string[]> {
  const doing = `listing the IPv${family} addresses of the interface ${JSON.stringify(name)}`;
  try {
    const { stdout } = await exec({
      file: 'netsh',
      args: listArgs(family, name),
      timeoutMs: NETSH_TIMEOUT_MS,
      maxOutput: MAX_OUTPUT,
    });
    return family === 4 ? readIpv4Listing(stdout) : readIpv6Listing(stdout);
  } catch (cause) {
    throw netshFailure(cause, doing);
  }
}

/** Carries out one command. Rejects with KPNG_PORTAL_*; `doing` says what it is for. */
export async function runNetsh(exec: Exec, args: readonly string[], doing: string): Promise<void> {
  try {
    await exec({ file: 'netsh', args, timeoutMs: NETSH_TIMEOUT_MS, maxOutput: MAX_OUTPUT });
  } catch (cause) {
    throw netshFailure(cause, doing);
  }
}

/**
 * Carries out several commands in one process; netsh goes on after one that fails. False: some have
 * failed, and which is not known, or they cannot be said in a script and nothing was done. Rejects with
 * KPNG_PORTAL_* when netsh cannot be run.
 */
export async function runScript(
  exec: Exec,
  commands: readonly (readonly string[])[],
  doing: string,
): Promise<boolean> {
  const lines = commands.map(scriptLine);
  if (lines.includes(undefined)) return false;
  let folder: string | undefined;
  try {
    folder = await mkdtemp(join(tmpdir(), 'kpng-userspace-'));
    const file = join(folder, 'netsh.txt');
    await writeFile(file, `${lines.join('\r\n')}\r\n`, { mode: 0o600 });
    await exec({
      file: 'netsh',
      args: ['-f', file],
      timeoutMs: NETSH_TIMEOUT_MS + lines.length * ADDRESS_WRITE_MS,
      maxOutput: MAX_OUTPUT,
    });
    return true;
  } catch (cause) {
    if (cause instanceof ExecError && cause.failure === 'exit') return false;
    throw netshFailure(cause, doing);
  } finally {
    if (folder !== undefined) await rm(folder, { recursive: true, force: true });
  }
}
