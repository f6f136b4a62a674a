/**
 * Generates src/api/generated from the .proto files beside this one.
 *
 *     npm run generate              writes the files
 *     npm run generate -- --check   fails when the files are not what would be written
 */
import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join, relative } from 'node:path';
import { promisify } from 'node:util';

const HERE = import.meta.dirname;
const GENERATED = join(HERE, '..', 'generated');
const BIN = join(HERE, '..', '..', '..', 'node_modules', '.bin');

/** Runs buf. It finds the generator on the PATH. */
async function generate(args: readonly string[]): Promise<void> {
  const env = { ...process.env, PATH: `${BIN}${delimiter}${process.env['PATH'] ?? ''}` };
  // npm makes .cmd files on Windows, which only a shell can start; so node starts the program itself.
  const buf = join(BIN, '..', '@bufbuild', 'buf', 'bin', 'buf');
  await promisify(execFile)(process.execPath, [buf, 'generate', ...args], { cwd: HERE, env });
}

/** Every file of a directory with its content, by path. */
async function contents(directory: string): Promise<Map<string, string>> {
  const files = new Map<string, string>();
  for (const entry of await readdir(directory, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    files.set(relative(directory, path), await readFile(path, 'utf8'));
  }
  return files;
}

/** What differs between the files of a directory and what would be generated now; empty: nothing. */
export async function drift(directory: string = GENERATED): Promise<string[]> {
  const scratch = await mkdtemp(join(tmpdir(), 'kpng-generate-'));
  try {
    // The output directories of buf.gen.yaml are relative to this one.
    await generate(['--output', join(scratch, 'proto')]);
    const wanted = await contents(join(scratch, 'generated'));
    const present = await contents(directory);
    const paths = new Set([...wanted.keys(), ...present.keys()]);
    return [...paths]
      .sort()
      .flatMap((path) => difference(path, present.get(path), wanted.get(path)));
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

function difference(
  path: string,
  present: string | undefined,
  wanted: string | undefined,
): string[] {
  if (present === wanted) return [];
  if (present === undefined) return [`${path}: is missing`];
  if (wanted === undefined) return [`${path}: would not be generated`];
  const [old, now] = [present.split('\n'), wanted.split('\n')];
  const line = now.findIndex((text, i) => text !== old[i]);
  const at = line === -1 ? now.length : line;
  return [`${path}:${at + 1}: has ${quoted(old[at])}, would be ${quoted(now[at])}`];
}

function quoted(line: string | undefined): string {
  return line === undefined ? 'no such line' : JSON.stringify(line.trim());
}

if (process.argv[1] === import.meta.filename) {
  if (process.argv.includes('--check')) {
    const differences = await drift();
    if (differences.length > 0) {
      const advice =
        'src/api/generated is not up to date: run "npm run generate" and commit the result.';
      process.stderr.write(`${[...differences, advice].join('\n')}\n`);
      process.exitCode = 1;
    }
  } else {
    await generate([]);
  }
}
