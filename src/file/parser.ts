import type { GlobalState } from '../store/global-state.ts';
import type { FileLimits } from './limits.ts';
import { parseStateFile, type ParseMemory } from './parse.ts';
import type { Problem, Problems } from './problem.ts';
import { decodeText } from './read.ts';
import { stateChanges, weightOf, type StateChange } from './state-changes.ts';

/** What became of the content of a state file; of a valid one the state is asked for in parts. */
export type Verdict =
  | { readonly ok: false; readonly errors: Problems }
  | {
      readonly ok: true;
      readonly warnings: Problems;
      /** Those of them that the last valid content did not have. */
      readonly newWarnings: Problems;
      /** How many service items were parsed; the others were the same as before. */
      readonly parsedItems: number;
    };

/** So many endpoints, about, are handed over at once: a few milliseconds of copying. */
const PART_WEIGHT = 1000;

/** Parses a state file again and again, and tells each time what has changed. */
export class Parser {
  readonly #limits: FileLimits;
  #memory: ParseMemory | undefined;
  /** What was handed over, or is being handed over. */
  #state: GlobalState | undefined;
  #changes: Iterator<StateChange, void, undefined> | undefined;

  constructor(limits: FileLimits) {
    this.#limits = limits;
  }

  /** The former state must have been handed over. */
  parse(bytes: Uint8Array): Verdict {
    const decoded = decodeText(bytes);
    if (!decoded.ok) return { ok: false, errors: only(decoded.problem) };
    const result = parseStateFile(decoded.text, { limits: this.#limits, memory: this.#memory });
    this.#memory = result.memory;
    if (!result.ok) return { ok: false, errors: result.errors };
    this.#changes = stateChanges(this.#state, result.state);
    this.#state = result.state;
    const { warnings, newWarnings, parsedItems } = result;
    return { ok: true, warnings, newWarnings, parsedItems };
  }

  /** The next part of what has changed; an empty one is the last. */
  nextPart(): StateChange[] {
    const part: StateChange[] = [];
    let weight = 0;
    while (weight < PART_WEIGHT) {
      const next = this.#changes?.next();
      if (next === undefined || next.done === true) break;
      part.push(next.value);
      weight += weightOf(next.value);
    }
    return part;
  }
}

function only(problem: Problem): Problems {
  return { first: [problem], total: 1 };
}
