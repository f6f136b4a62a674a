import { KpngError } from '../../errors.ts';
import { MAX_TRIALS } from '../bounds.ts';
import { portalFailed, type PortalWritten } from '../events.ts';
import type { PortalProblem } from '../portal.ts';
import { isAboutContent, isAccepted, type ToolError } from '../exec.ts';
import {
  type Backend,
  type Comparison,
  type Element,
  Elements,
  type RuleConfig,
} from './backend.ts';
import { findOwner } from './canary.ts';

/**
 * Finds the names whose part of a transaction is rejected, by halving. `accepted`: whether these names' parts are
 * accepted together. Undefined if not even an empty one is. After `MAX_TRIALS`, every unchecked name counts as bad.
 */
export async function findUnacceptable(
  names: readonly string[],
  accepted: (names: readonly string[]) => Promise<boolean>,
): Promise<readonly string[] | undefined> {
  if (!(await accepted([]))) return undefined;
  let trials = 0;
  const search = async (group: readonly string[]): Promise<readonly string[]> => {
    if (group.length === 0 || trials >= MAX_TRIALS) return group;
    trials += 1;
    if (await accepted(group)) return [];
    if (group.length > 1) {
      const middle = group.length >> 1;
      return [...(await search(group.slice(0, middle))), ...(await search(group.slice(middle)))];
    }
    // Confirm: a tool that fails occasionally must not put the blame on an innocent service port.
    trials += 1;
    return (await accepted(group)) ? [] : group;
  };
  return search(names);
}

export type Written = Omit<PortalWritten, 'portal' | 'durationMs'>;

/**
 * - `foreign`: another process, or an ended one, wrote the rules
 * - `known`: the kernel has the last write
 * - `unknown`: we wrote the rules, but they may have changed since
 */
type State = 'foreign' | 'known' | 'unknown';

/**
 * The rules of all service ports, and transactions that update the kernel: with the difference while its state is
 * known, else with everything. Service ports that the kernel rejects are left out.
 *
 * Calls of `write` must not overlap.
 */
export class RuleSet {
  readonly #backend: Backend;
  readonly #elements = new Elements();
  /** Service ports that are left out, with their elements. */
  readonly #refused = new Map<string, { elements: readonly Element[]; problem: PortalProblem }>();
  #state: State = 'foreign';
  /** The process that writes the rules instead of this one, and the error of all writes meanwhile. */
  taken: { readonly owner: string; readonly error: KpngError } | undefined;
  /** How many have ended. */
  transactions = 0;

  constructor(backend: Backend) {
    this.#backend = backend;
  }

  get refused(): PortalProblem[] {
    return [...this.#refused.values()].map(({ problem }) => problem);
  }

  /** Replaces the elements of an owner, see `Elements`; an empty list removes it. */
  set(owner: string, elements: readonly Element[]): void {
    this.#refused.delete(owner);
    this.#elements.set(owner, elements);
  }

  /** The next write retries the service ports that were left out. */
  readmit(): void {
    for (const [name, { elements }] of this.#refused) this.set(name, elements);
  }

  /**
   * The next write replaces the rules, unless another process has them; if that was already known, they are taken
   * back. Returns whether the kernel was believed to have the last write.
   */
  doubt(): boolean {
    const wasKnown = this.#state === 'known';
    if (this.taken !== undefined) this.#state = 'foreign';
    else if (wasKnown) this.#state = 'unknown';
    this.taken = undefined;
    return wasKnown;
  }

  /** The difference found by `compare`; undefined: none, or the rules are not ours alone. */
  async difference(
    config: RuleConfig,
    compare: Comparison['difference'],
  ): Promise<string | undefined> {
    if (this.#state !== 'known' || this.taken !== undefined) return undefined;
    const found = await compare(config, this.#elements);
    return found && `${this.#backend.what}: ${found}`;
  }

  /** Writes the differences; undefined if there are none. Rejects with KPNG_PORTAL_*. */
  async write(config: RuleConfig): Promise<Written | undefined> {
    if (this.taken !== undefined) throw this.taken.error;
    try {
      return await this.#transact(config);
    } catch (error) {
      if (!isAboutContent(error)) throw error;
      await this.#leaveOutRefused(config, error);
      return this.#transact(config);
    }
  }

  async #transact(config: RuleConfig): Promise<Written | undefined> {
    const elements = this.#elements;
    const isStart = this.#state === 'foreign';
    const changes = isStart ? [] : elements.changes();
    let reason: Written['reason'] = isStart ? 'start' : 'repair';
    if (this.#state === 'known') {
      if (changes.length === 0) return undefined;
      // After a failure, the change may or may not have been applied.
      this.#state = 'unknown';
      const change = this.#unlessTaken(() => this.#backend.change(config, changes, elements));
      if (await isAccepted(change)) reason = 'change';
    }
    if (reason !== 'change') {
      await this.#unlessTaken(() => this.#backend.replace(config, elements, !isStart));
    }
    this.#state = 'known';
    elements.written();
    if (isStart) return { reason, added: elements.size, removed: 0 };
    const added = changes.filter(({ after }) => after !== undefined).length;
    const removed = changes.filter(({ before }) => before !== undefined).length;
    return { reason, added, removed };
  }

  async #unlessTaken(transaction: () => Promise<string | undefined>): Promise<void> {
    const owner = await transaction().finally(() => {
      this.transactions += 1;
    });
    if (owner === undefined) return;
    const { what, apart } = this.#backend;
    const pid = (await findOwner(owner))?.pid;
    const who = pid === undefined ? 'another process' : `another process (${pid})`;
    const message =
      `${who} writes ${what} now; this process leaves it unchanged while that one runs. ` +
      `Stop one of them, or ${apart}`;
    this.taken = { owner, error: new KpngError('KPNG_PORTAL_TAKEN', message) };
    throw this.taken.error;
  }

  /** Finds the service ports that the kernel rejects. Rejects if none of them is to blame. */
  async #leaveOutRefused(config: RuleConfig, error: ToolError): Promise<void> {
    const owners = [...this.#elements.owners];
    const portal = owners.filter((owner) => !owner.includes('/'));
    const services = owners.filter((owner) => owner.includes('/'));
    const bad = await findUnacceptable(services, (names) => {
      const some = new Elements();
      for (const owner of [...portal, ...names]) some.set(owner, this.#elements.get(owner));
      return this.#backend.accepts(config, some);
    });
    const { code } = error;
    if (bad === undefined) {
      const message = `${error.message}; it refuses even the rules without any service`;
      throw new KpngError('KPNG_PORTAL_UNSUPPORTED', message, { cause: error });
    }
    for (const name of bad) {
      const message = `${name} is left out; retried later: ${error.message}`;
      const problem = { servicePort: name, code, message };
      this.#refused.set(name, { elements: this.#elements.get(name), problem });
      this.#elements.set(name, []);
      const cause = new KpngError(code, message, { cause: error, servicePort: name });
      portalFailed.publish({ portal: this.#backend.kind, error: cause });
    }
  }
}
