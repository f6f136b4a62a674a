import type { ErrorCode } from '../errors.ts';

/** Something that keeps a part of the state from being proxied. */
export interface Problem {
  readonly code: ErrorCode;
  /** For people: what, where, and how to set it right. */
  readonly message: string;
  /** The first service port that it concerns; undefined when it concerns none in particular. */
  readonly servicePort: string | undefined;
  /** How many service ports or addresses it concerns. */
  readonly count: number;
}

type Publish = (kind: 'appeared' | 'changed' | 'gone', problem: Problem) => void;

interface Noted {
  problem: Problem;
  /** The count that was told last. */
  told: number;
}

/**
 * The problems that there are now. It tells of each once when it comes up and once when it is over,
 * and in between only when it concerns at least twice as many, or at most half as many, as were told.
 */
export class ProblemBook {
  readonly #noted = new Map<string, Noted>();
  readonly #publish: Publish;

  constructor(publish: Publish) {
    this.#publish = publish;
  }

  /** Every problem, as it is now. */
  list(): Problem[] {
    return [...this.#noted.values()].map(({ problem }) => problem);
  }

  /** Whether the key stands for a problem now. */
  has(key: string): boolean {
    return this.#noted.has(key);
  }

  /** Says what a key stands for now; undefined or a count of 0: nothing any more. */
  note(key: string, problem: Problem | undefined): void {
    const noted = this.#noted.get(key);
    if (problem === undefined || problem.count === 0) {
      if (noted === undefined) return;
      this.#noted.delete(key);
      this.#publish('gone', noted.problem);
      return;
    }
    if (noted === undefined) {
      this.#noted.set(key, { problem, told: problem.count });
      this.#publish('appeared', problem);
      return;
    }
    noted.problem = problem;
    if (problem.count < noted.told * 2 && problem.count * 2 > noted.told) return;
    noted.told = problem.count;
    this.#publish('changed', problem);
  }
}
