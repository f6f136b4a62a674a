import { SIGNATURES, type Library } from '../../src/proxysocket/linux/sys/library.ts';

export type Calls = Record<string, number>;

/** The same C functions, each call of which is counted by its name. */
export function countedLibrary(library: Library): { library: Library; calls: Calls } {
  const calls: Calls = {};
  const functions = Object.keys(SIGNATURES).map((name) => {
    const original = library.c[name as keyof Library['c']] as (...args: unknown[]) => unknown;
    calls[name] = 0;
    const counted = (...args: unknown[]): unknown => {
      calls[name] = (calls[name] ?? 0) + 1;
      return original(...args);
    };
    return [name, counted];
  });
  return {
    library: { ...library, c: Object.fromEntries(functions) as Library['c'] },
    calls,
  };
}
