import { KpngError } from '../../errors.ts';
import type { Exec } from '../../portal/exec.ts';
import { Kernel, type Tools } from '../../portal/iptables/tools.ts';
import type { LocalChange, LocalSink } from '../../store/local-view.ts';
import type { Family } from '../../util/family.ts';
import { extipProblem, newProblems } from '../events.ts';
import { extipRules, type ExtipOptions } from './rules.ts';

export interface ExtipSinkOptions extends ExtipOptions {
  readonly exec: Exec;
  /** The iptables to use; called again after a failure. */
  readonly tools: () => Promise<Tools>;
}

/**
 * Redirects external IPs to endpoints with iptables chains, with one run of iptables-restore for each family whose
 * rules changed. The administrator has to add the jumps to these chains; they stay when the program ends.
 *
 * A sync rejects if the rules could not be written; the deliverer retries it.
 */
export class ExtipSink implements LocalSink {
  readonly #options: ExtipSinkOptions;
  readonly #written = new Map<Family, string>();
  readonly #onlyNew = newProblems();

  constructor(options: ExtipSinkOptions) {
    this.#options = options;
  }

  async sync({ view }: LocalChange): Promise<void> {
    const both = ([4, 6] as const).map(
      (family) => [family, extipRules(view, family, this.#options)] as const,
    );
    const problems = both.flatMap(([, each]) => each.problems);
    for (const error of this.#onlyNew(problems)) extipProblem.publish({ error });
    const outcomes = await Promise.allSettled(
      both.map(async ([family, { text, any }]) => this.#writeFamily(family, text, any)),
    );
    // Each family has been tried; the first failure is thrown, and all are retried.
    for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
  }

  async #writeFamily(family: Family, text: string, any: boolean): Promise<void> {
    if (this.#written.get(family) === text) return;
    const kernel = new Kernel(this.#options.exec, await this.#options.tools());
    try {
      await kernel.restore(family, text, `writing the rules of IPv${family} external IPs`);
    } catch (error) {
      this.#written.delete(family);
      // A host without IPv6 has none of our rules either.
      if (family === 6 && !any && error instanceof KpngError && CANNOT.has(error.code)) return;
      throw error;
    }
    this.#written.set(family, text);
  }
}

const CANNOT: ReadonlySet<string> = new Set([
  'KPNG_PORTAL_UNSUPPORTED',
  'KPNG_PORTAL_TOOL_MISSING',
]);
