import { setImmediate } from 'node:timers/promises';

/** Node options that enable the debugger; `--inspect-port` alone does not. */
const ASKED = /(?:^|[ "])--inspect(?:-brk|-wait)?(?:[= "]|$)/;

/**
 * Closes the debugger that an early USR1 opened to every local user, before the program handled that signal. A
 * debugger requested by an option stays.
 */
export async function closeDebugger(): Promise<void> {
  const options = [process.env['NODE_OPTIONS'] ?? '', ...process.execArgv].join(' ');
  if (ASKED.test(options) || !process.features.inspector) return;
  // Node opens it in the event loop; by the next turn that is done.
  await setImmediate();
  process.getBuiltinModule('node:inspector').close();
}
