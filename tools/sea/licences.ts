/** Lists the licences of everything that is inside an executable. */
import { readdirSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { packageFolder } from './bundle.ts';

interface Part {
  readonly name: string;
  readonly version: string;
  readonly license: string;
  readonly text: string;
}

/**
 * The text of the file that goes with the executables: each bundled package with its licence. Throws for
 * a package that does not say what its licence is.
 */
export async function licences(root: string, inputs: readonly string[]): Promise<string> {
  const folders = new Set(inputs.flatMap((file) => packageFolder(file) ?? []));
  const parts = await Promise.all(
    [...folders].sort().map((folder) => readPart(join(root, folder))),
  );
  const head =
    'These parts are inside the executable, besides Node.js (https://github.com/nodejs/node/blob/main/LICENSE):\n';
  const list = parts.map(({ name, version, license }) => `  ${name} ${version}: ${license}\n`);
  const texts = parts.map(({ name, text }) => `\n---- ${name} ----\n\n${text.trim()}\n`);
  return `${head}\n${list.join('')}${texts.join('')}`;
}

async function readPart(folder: string): Promise<Part> {
  const { name, version, license } = JSON.parse(
    await readFile(join(folder, 'package.json'), 'utf8'),
  ) as Record<string, unknown>;
  if (typeof license !== 'string') throw new Error(`${folder} does not say what its licence is`);
  const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
  const text = file === undefined ? `(${license})` : await readFile(join(folder, file), 'utf8');
  return { name: String(name), version: String(version), license, text };
}
