/** The names that an executable may have, and the words that each stands for. */
export const NAMES: Readonly<Record<string, readonly string[]>> = {
  'kpng-userspace': [],
  kpng: [],
  'kpng-json': ['local', 'to-json'],
  'kpng-callout': ['local', 'to-callout'],
  winuserspace: ['local', 'to-winuserspace'],
};

/**
 * Puts the words that the name of the executable stands for before its arguments, unless these begin with a word, so
 * that `winuserspace version` works. An unknown name stands for no words.
 */
export function argumentsFor(path: string, args: readonly string[]): readonly string[] {
  const name = (path.split(/[\\/]/).at(-1) ?? '').toLowerCase().replace(/\.exe$/, '');
  const words = Object.hasOwn(NAMES, name) ? (NAMES[name] ?? []) : [];
  const [first] = args;
  return first === undefined || first.startsWith('-') ? [...words, ...args] : args;
}
