/** What the commands of the bench have in common: reading flags, and writing figures. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';

const RESULTS = join(import.meta.dirname, '../results');

export type Print = (text: string) => void;

export type EngineName = 'node' | 'linux';
export const ENGINES: readonly EngineName[] = ['node', 'linux'];

/** Where the figures go. */
export interface Output {
  readonly json: string;
  readonly writeDocs: boolean;
}

type Flags = Readonly<Record<string, string | boolean>>;

/**
 * The flags of a command, with their defaults, and those that every command has. `name`: of its file in bench/results.
 * Throws a TypeError for any other flag.
 */
export function readFlags<Own extends Flags>(name: string, args: readonly string[], own: Own) {
  const flags: Flags = { ...own, json: join(RESULTS, `${name}.json`), 'write-docs': false };
  const options = Object.entries(flags).map(([flag, value]) => {
    const type = typeof value === 'string' ? ('string' as const) : ('boolean' as const);
    return [flag, { type, default: value }] as const;
  });
  const { values } = parseArgs({ args: [...args], options: Object.fromEntries(options) });
  const { json, 'write-docs': writeDocs } = values;
  const output: Output = { json: resolve(String(json)), writeDocs: writeDocs === true };
  return {
    values: values as { readonly [Flag in keyof Own]: Own[Flag] extends string ? string : boolean },
    output,
  };
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
