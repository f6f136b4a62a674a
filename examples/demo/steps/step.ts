import type { Scene } from '../scene.ts';

/** What a step of the tour found. */
export interface Finding {
  /** What was seen, with numbers. */
  readonly lines: readonly string[];
  /** Whether it was as it should be. */
  readonly ok: boolean;
  /** One sentence: what this shows. */
  readonly verdict: string;
}

/** One thing that the tour does and shows. */
export interface Step {
  readonly title: string;
  run(scene: Scene): Promise<Finding>;
}

/** Name in an answer such as `hello from alder`, or `alder says …`. */
export function whoAnswered(answer: string): string {
  return (
    /hello from (\w+)/.exec(answer)?.[1] ?? /^(\w+) says /.exec(answer)?.[1] ?? 'unknown endpoint'
  );
}
