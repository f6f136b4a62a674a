import { availableParallelism } from 'node:os';

/** Workers of an engine at most: each has a socket of its own for every listener. */
export const MAX_WORKERS = 64;

/** How many workers `auto` stands for: one for each CPU that the process may use. */
export function autoWorkers(parallelism: number = availableParallelism()): number {
  return Math.min(parallelism, MAX_WORKERS);
}
