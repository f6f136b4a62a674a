/** System calls for tests of the `linux` engine, where there are any. */
import t, { type Test } from 'tap';
import { Loop } from '../../src/proxysocket/linux/loop.ts';
import { Sys } from '../../src/proxysocket/linux/sys/sys.ts';
import { openLibrary, type Library } from '../../src/proxysocket/linux/sys/library.ts';
import type { Teardown } from './sockets.ts';

async function open(): Promise<Library | string> {
  if (process.platform !== 'linux') return 'only on linux';
  try {
    return openLibrary(await import('node:ffi'));
  } catch {
    return 'this Node has no node:ffi';
  }
}

const opened = await open();

// Otherwise Node frees the system calls of this thread while V8 optimises them: see `compileInPlace`.
process.once('exit', () => process.exit());

/** A test that needs system calls. */
export function linuxTest(name: string, run: (t: Test) => void | Promise<void>): void {
  t.test(name, { skip: typeof opened === 'string' ? opened : false }, async (t) => run(t));
}

/** Only in a `linuxTest`. */
export function library(): Library {
  if (typeof opened === 'string') throw new Error(opened);
  return opened;
}

/** A set of system calls with a ledger of its own. */
export function newSys(): Sys {
  return new Sys(library());
}

/** A loop that is turned by the test, and ends with it. */
export function newLoop(t: Teardown, sys = newSys()): Loop {
  const loop = new Loop(sys, (error) => {
    throw error;
  });
  t.teardown(() => loop.end());
  return loop;
}
