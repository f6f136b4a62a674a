import { setImmediate } from 'node:timers/promises';

/** Options of Node that enable its debugger; `--inspect-port` alone does not. */
const ASKED = /(?:^|[ "])--inspect(?:-brk|-wait)?(?:[= "]|$)/;

/**
 * Closes the debugger that a USR1 has opened to every local user before the program's handler of that signal was
 * there. One that was asked for stays.
 */
export async function closeDebugger(): Promise<void> {
  const options = [process.env['NODE_OPTIONS'] ?? '', ...process.execArgv].join(' ');
  if (ASKED.test(options) || !process.features.inspector) return;
  // Node opens it both at once and in the event loop: in the next turn it does so no more.
  await setImmediate();
  process.getBuiltinModule('node:inspector').close();
}
