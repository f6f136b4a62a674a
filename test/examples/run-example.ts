import { join } from 'node:path';
import { Running } from '../support/running.ts';
import type { Teardown } from '../support/sockets.ts';

/** Starts a program of examples/; it is killed when the test ends. */
export function startExample(t: Teardown, name: string, args: readonly string[]): Running {
  const path = join(import.meta.dirname, '..', '..', 'examples', name);
  return new Running(t, process.execPath, [path, ...args]);
}
