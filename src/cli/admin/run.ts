import { callAdmin, type AdminCall } from '../../admin/client.ts';
import type { StatusView } from '../../admin/standard.ts';
import { KpngError } from '../../errors.ts';
import { HEALTH_STATES, unreachable } from '../../observe/verdict.ts';
import type { Streams } from '../command.ts';
import { print, type OutputForm } from './layout.ts';
import { TEXTS } from './tables.ts';

/** What a command asks of the proxy; `method` is GET by default. */
export type AdminRequest = Omit<AdminCall, 'socket' | 'method'> &
  Partial<Pick<AdminCall, 'method'>>;

/** Runs a command over the admin socket at a path, and returns the exit code. Rejects with a KpngError. */
export async function runAdmin(
  { operation, method = 'GET', input = {} }: AdminRequest,
  socket: string,
  flags: Readonly<Record<string, unknown>>,
  terminal: Streams,
): Promise<number> {
  if (socket === '') {
    throw new KpngError(
      'KPNG_ADMIN_UNREACHABLE',
      'there is no default path of the admin socket here; name it with --socket',
    );
  }
  if (operation === 'top') {
    const { runTop } = await import('./top/run.ts');
    const get = (asked: string, given = {}) =>
      callAdmin({ socket, method, operation: asked, input: given });
    return runTop(flags, get, terminal);
  }
  const isStatus = operation === 'status';
  const value = await callAdmin({ socket, method, operation, input }).catch((error: unknown) => {
    const isDown = error instanceof KpngError && error.code === 'KPNG_ADMIN_UNREACHABLE';
    if (!isStatus || !isDown) throw error;
    return { health: unreachable(error.message) };
  });
  const lines = (TEXTS[operation as keyof typeof TEXTS] as (value: unknown) => string[])(value);
  await print(value, lines, flags['output'] as OutputForm, terminal.stdout);
  return isStatus ? HEALTH_STATES.indexOf((value as StatusView).health.state) : 0;
}
