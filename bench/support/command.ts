/** What the commands of the bench have in common: reading flags, and writing figures. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';

const RESULTS = join(import.meta.dirname, '../results');

export type Print = (text: string) => void;

export type EngineName = 'node' | 'linux';
export const ENGINES: readonly EngineName[] = ['node', 'linux'];

/** Where the figures go. */
export interface Output {
  readonly json: string;
  readonly writeDocs: boolean;
}

/** The flags that every command has; `name`: of its file in bench/results. */
export function commonFlags(name: string) {
  return {
    json: { type: 'string', default: join(RESULTS, `${name}.json`) },
    'write-docs': { type: 'boolean', default: false },
  } as const;
}

export function outputOf(values: {
  readonly json: string;
  readonly 'write-docs': boolean;
}): Output {
  return { json: resolve(values.json), writeDocs: values['write-docs'] };
}

/** Throws a TypeError for anything but a whole number within the bounds. */
export function count(flag: string, text: string, least = 1, most = 100_000): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= least && value <= most) return value;
  throw new TypeError(
    `--${flag} ${JSON.stringify(text)}: expected a whole number from ${least} to ${most}`,
  );
}

/** Throws a TypeError for any other word. */
export function engineNamed(word: string): EngineName {
  const found = ENGINES.find((each) => each === word);
  if (found !== undefined) return found;
  throw new TypeError(`engine ${word}: expected one of ${ENGINES.join(', ')}`);
}

export function writeJson(path: string, value: unknown): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, `${JSON.stringify(value, null, 2)}\n`);
}
