/**
 * `npm run build:sea`: makes one executable for each system, from any Linux.
 *
 *     npm run build:sea                       all of them, into dist-sea/
 *     npm run build:sea -- win-x64 --out DIR  one of them, elsewhere
 *
 * An executable is Node with the program inside. Under each of its names it is the same file.
 */
import { execFile } from 'node:child_process';
import { copyFile, link, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs, promisify } from 'node:util';
import { makeBundle, type Bundle } from './bundle.ts';
import { licences } from './licences.ts';
import { NAMES } from './names.ts';
import { nodeOf, TARGETS, type Target } from './node-of.ts';
import { withVersion } from './version-resource.ts';

const ROOT = join(import.meta.dirname, '..', '..');

/** What the program and its threads may come to, without Node. Bytes. */
const MAX_BUNDLE = 3 * 1024 * 1024;

const run = promisify(execFile);

async function main(): Promise<void> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { out: { type: 'string', default: join(ROOT, 'dist-sea') } },
  });
  const out = resolve(values.out);
  const targets = TARGETS.filter(
    ({ name }) => positionals.length === 0 || positionals.includes(name),
  );
  if (targets.length < positionals.length) {
    throw new Error(`targets are ${TARGETS.map(({ name }) => name).join(', ')}`);
  }
  const bundle = await makeBundle();
  const size = bundleSize(bundle);
  say(`bundle: ${size.toLocaleString('en')} bytes`);
  if (size > MAX_BUNDLE) throw new Error(`the bundle has more than ${MAX_BUNDLE} bytes`);
  const text = await licences(ROOT, bundle.inputs);
  for (const target of targets) {
    const folder = join(out, target.name);
    await mkdir(folder, { recursive: true });
    await writeFile(join(folder, 'LICENSES.txt'), text);
    await makeExecutable(bundle, target, folder);
    say(
      `${folder}: ${Object.keys(NAMES)
        .map((name) => name + target.suffix)
        .join(', ')}`,
    );
  }
}

function bundleSize({ main: script, assets }: Bundle): number {
  return [script, ...Object.values(assets)].reduce((sum, each) => sum + Buffer.byteLength(each), 0);
}

/** Writes the executable under its first name, and links the others to it. */
async function makeExecutable(bundle: Bundle, target: Target, folder: string): Promise<void> {
  const scratch = await mkdtemp(join(tmpdir(), 'kpng-userspace-sea-'));
  try {
    const executable = await baseOf(target, bundle, scratch);
    const script = join(scratch, 'main.cjs');
    await writeFile(script, bundle.main);
    const assets: Record<string, string> = {};
    for (const [index, [name, content]] of Object.entries(bundle.assets).entries()) {
      assets[name] = join(scratch, `asset-${index}`);
      await writeFile(assets[name], content);
    }
    const [first = '', ...others] = Object.keys(NAMES).map((name) =>
      join(folder, name + target.suffix),
    );
    const config = {
      main: script,
      output: first,
      executable,
      assets,
      disableExperimentalSEAWarning: true,
      execArgv: ['--disable-warning=ExperimentalWarning', '--disable-sigusr1'],
      // A cache of compiled code is for the system that made it only.
      useCodeCache: target.name === `${process.platform}-${process.arch}`,
    };
    const configFile = join(scratch, 'config.json');
    await writeFile(configFile, JSON.stringify(config));
    await run(process.execPath, ['--build-sea', configFile]);
    for (const other of others) {
      await rm(other, { force: true });
      // A file system without links has copies.
      await link(first, other).catch(() => copyFile(first, other));
    }
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

/** Node for the target; on Windows with our version. */
async function baseOf(target: Target, { assets }: Bundle, scratch: string): Promise<string> {
  const node = await nodeOf(target);
  if (target.suffix !== '.exe') return node;
  const { version } = JSON.parse(assets['package.json'] ?? '{}') as { version: string };
  const base = join(scratch, 'node.exe');
  await writeFile(base, withVersion(new Uint8Array(await readFile(node)), version));
  return base;
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

await main();
