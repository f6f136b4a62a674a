import { extname } from 'node:path';

/**
 * Files inside a single executable that are otherwise beside the modules: text files, and modules that run in their
 * own threads. Empty when run from source or from dist/.
 */
let texts: ReadonlyMap<string, string> = new Map();

/** Call it once, first, in the entry point of an executable. */
export function provideBundle(files: Readonly<Record<string, string>>): void {
  texts = new Map(Object.entries(files));
}

/** The content of a bundled file; undefined if there is none, or outside an executable. */
export function bundledText(name: string): string | undefined {
  return texts.get(name);
}

/** The code of a thread: a bundled module, or the file beside the module `from`, `beside` without its extension. */
export function threadModule(name: string, beside: string, from: string): URL {
  const code = bundledText(name);
  if (code === undefined) return new URL(`./${beside}${extname(from)}`, from);
  return new URL(`data:text/javascript;base64,${Buffer.from(code).toString('base64')}`);
}
