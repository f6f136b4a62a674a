/**
 * Starts the program from dist/ when that was built, and from src/ otherwise, where Node takes the
 * types out by itself. It is plain JavaScript, and readable for old versions of Node, so that those
 * get a clear message instead of a syntax error.
 */
import { existsSync } from 'node:fs';

// Node opens its debugger to every local user on USR1 unless there is a handler, or --disable-sigusr1.
process.on('SIGUSR1', () => {});

/** As in package.json's `engines`. */
const OLDEST = [22, 19];

/**
 * Runs the program. `words` stand before the arguments that were given, for executables that are
 * short for a part of the command line, unless these begin with a word of their own.
 */
export async function start(words) {
  const [major, minor] = process.versions.node.split('.').map(Number);
  if (major < OLDEST[0] || (major === OLDEST[0] && minor < OLDEST[1])) {
    process.stderr.write(
      `kpng-userspace needs Node ${OLDEST.join('.')} or newer, and this is ${process.versions.node}\n`,
    );
    process.exit(2);
  }
  const built = new URL('../dist/cli/program.js', import.meta.url);
  const program = existsSync(built) ? built : new URL('../src/cli/program.ts', import.meta.url);
  const { main } = await import(program.href);
  const args = process.argv.slice(2);
  // `winuserspace version` and `winuserspace service install` are other commands.
  const isShort = args[0] === undefined || args[0].startsWith('-');
  process.exit(await main(isShort ? [...words, ...args] : args));
}
