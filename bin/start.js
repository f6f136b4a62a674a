/**
 * Starts the program: in a checkout from src/, where Node strips the types, and in the package from dist/. Plain
 * JavaScript that old versions of Node can parse, so that they get a clear message instead of a syntax error.
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
  // The package has no src/. In a checkout, dist/ may be older than the source.
  const source = new URL('../src/cli/program.ts', import.meta.url);
  const program = existsSync(source) ? source : new URL('../dist/cli/program.js', import.meta.url);
  const { main } = await import(program.href);
  const args = process.argv.slice(2);
  // `winuserspace version` and `winuserspace service install` are other commands.
  const isShort = args[0] === undefined || args[0].startsWith('-');
  process.exit(await main(isShort ? [...words, ...args] : args));
}
