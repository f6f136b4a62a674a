import type { Handover } from './handover.ts';
import type { FileLimits } from './limits.ts';
import { parseStateFile, type ParseMemory } from './parse.ts';
import type { Problem, Problems } from './problem.ts';
import { decodeText } from './read.ts';

/** What became of the content of a state file. */
export type Verdict =
  { readonly ok: false; readonly errors: Problems } | ({ readonly ok: true } & GoodVerdict);

export interface GoodVerdict {
  /** Whether there are steps to take. */
  readonly changed: boolean;
  readonly services: number;
  readonly nodes: number;
  readonly warnings: Problems;
  /** Those of them that the last valid content did not have. */
  readonly newWarnings: Problems;
  /** How many service items were parsed; the others were the same as before. */
  readonly parsedItems: number;
}

/** As much is handed over at once: a few milliseconds of copying. */
const PART_WEIGHT = 1000;

/** Parses a state file again and again, and tells what has changed. */
export class Parser<Step> {
  readonly #limits: FileLimits;
  readonly #handover: Handover<Step>;
  #memory: ParseMemory | undefined;
  #hasState = false;
  #steps: Iterator<Step, void, undefined> | undefined;

  constructor(limits: FileLimits, handover: Handover<Step>) {
    this.#limits = limits;
    this.#handover = handover;
  }

  parse(bytes: Uint8Array): Verdict {
    const decoded = decodeText(bytes);
    if (!decoded.ok) return { ok: false, errors: only(decoded.problem) };
    const result = parseStateFile(decoded.text, { limits: this.#limits, memory: this.#memory });
    this.#memory = result.memory;
    if (!result.ok) return { ok: false, errors: result.errors };
    const { state, warnings, newWarnings, parsedItems } = result;
    const { services, nodes } = state;
    const changed = this.#handover.update(state);
    this.#hasState = true;
    const counts = { services: services.size, nodes: nodes.size, parsedItems };
    return { ok: true, changed, ...counts, warnings, newWarnings };
  }

  /** The next part of the steps to the newest state; an empty one ends them. Undefined: there is none yet. */
  nextPart(): Step[] | undefined {
    if (!this.#hasState) return undefined;
    const steps = (this.#steps ??= this.#handover.begin());
    const part: Step[] = [];
    for (let weight = 0; weight < PART_WEIGHT;) {
      const next = steps.next();
      if (next.done === true) break;
      part.push(next.value);
      weight += this.#handover.weightOf(next.value);
    }
    if (part.length === 0) this.#steps = undefined;
    return part;
  }
}

function only(problem: Problem): Problems {
  return { first: [problem], total: 1 };
}
