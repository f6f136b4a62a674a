/** The names that an executable may have, and the words that each stands for. */
export const NAMES: Readonly<Record<string, readonly string[]>> = {
  'kpng-userspace': [],
  kpng: [],
  'kpng-json': ['local', 'to-json'],
  'kpng-callout': ['local', 'to-callout'],
  winuserspace: ['local', 'to-winuserspace'],
};

/**
 * The arguments that a command line of the executable at `path` stands for. A name that is short for
 * words is so only where no other word comes first, so that `winuserspace version` works. A name that
 * is not known is the whole program.
 */
export function argumentsFor(path: string, args: readonly string[]): readonly string[] {
  const name = (path.split(/[\\/]/).at(-1) ?? '').toLowerCase().replace(/\.exe$/, '');
  const words = Object.hasOwn(NAMES, name) ? (NAMES[name] ?? []) : [];
  const [first] = args;
  return first === undefined || first.startsWith('-') ? [...words, ...args] : args;
}
