import { KpngError } from '../../errors.ts';
import { MAX_TRIALS } from '../bounds.ts';
import { portalFailed } from '../events.ts';
import type { Portal, PortalProblem } from '../portal.ts';
import { ToolError } from '../tool-failure.ts';
import {
  type Backend,
  type Item,
  type ItemChange,
  ItemMap,
  type Items,
  type RuleConfig,
  takenError,
} from './items.ts';

/**
 * Finds the names whose part of a transaction is rejected, by halving. `accepted`: whether these names' parts are
 * accepted together. Undefined if not even an empty one is. After `maxTrials`, every unchecked name counts as bad.
 */
export async function findUnacceptable(
  names: readonly string[],
  accepted: (names: readonly string[]) => Promise<boolean>,
  maxTrials: number,
): Promise<string[] | undefined> {
  if (!(await accepted([]))) return undefined;
  let trials = 0;
  const bad: string[] = [];
  const pending: (readonly string[])[] = names.length === 0 ? [] : [names];
  for (let group = pending.pop(); group !== undefined; group = pending.pop()) {
    if (trials >= maxTrials) {
      for (const name of group) bad.push(name);
      continue;
    }
    trials += 1;
    if (await accepted(group)) continue;
    if (group.length === 1) {
      // Confirm: a tool that fails occasionally must not put the blame on an innocent service port.
      trials += 1;
      if (!(await accepted(group))) bad.push(...group);
    } else {
      const middle = group.length >> 1;
      pending.push(group.slice(middle), group.slice(0, middle));
    }
  }
  return bad;
}

/** The outcome of a successful write. */
export interface Written<Name extends string = string> {
  readonly reason: 'start' | 'change' | 'repair';
  /** The items that differ from the last write; for `start`, all of them. */
  readonly changes: readonly ItemChange<Name>[];
}

export interface RuleSetOptions<Name extends string> {
  readonly kind: Portal['kind'];
  readonly backend: Backend<Name>;
  /** How to give two processes separate rules: `give each a table of its own`. */
  readonly apart: string;
  /** The process id of the owner of rules under this name, if known. */
  readonly pidOf: (owner: string) => Promise<number | undefined>;
}

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
export class RuleSet<Name extends string> implements Items<Name> {
  readonly #options: RuleSetOptions<Name>;
  /** The rules of the kernel, current or next. */
  readonly #map = new ItemMap<Name>();
  /** Desired items by service port. */
  readonly #wanted = new Map<string, readonly Item<Name>[]>();
  /** Items that belong to no service port. */
  readonly #common: Item<Name>[] = [];
  /** Service ports left out, with the reason. */
  readonly #refused = new Map<string, PortalProblem>();
  #state: State = 'foreign';
  #takenBy: string | undefined;
  #steps = 0;

  constructor(options: RuleSetOptions<Name>) {
    this.#options = options;
  }

  items(set: Name): ReadonlyMap<string, string> {
    return this.#map.items(set);
  }

  /** Counts starts and ends of transactions, so it is odd during one. */
  get steps(): number {
    return this.#steps;
  }

  /** The process that writes the rules instead of this one, if any. */
  get takenBy(): string | undefined {
    return this.#takenBy;
  }

  /** One problem for each service port left out. */
  get refused(): PortalProblem[] {
    return [...this.#refused.values()];
  }

  /** Replaces the items of service ports; an empty list removes one. */
  replace(items: ReadonlyMap<string, readonly Item<Name>[]>): void {
    const remove: Item<Name>[] = [];
    const add: Item<Name>[] = [];
    for (const [name, after] of items) {
      for (const item of this.#wanted.get(name) ?? []) remove.push(item);
      for (const item of after) add.push(item);
      this.#refused.delete(name);
      if (after.length === 0) this.#wanted.delete(name);
      else this.#wanted.set(name, after);
    }
    this.#map.update(remove, add);
  }

  /** Adds items that belong to no service port. */
  add(items: readonly Item<Name>[]): void {
    this.#common.push(...items);
    this.#map.update([], items);
  }

  /** The next write retries the service ports that were left out. */
  readmit(): void {
    this.replace(
      new Map([...this.#refused.keys()].map((name) => [name, this.#wanted.get(name) ?? []])),
    );
  }

  /**
   * The next write replaces the rules, unless another process has them; if that was already known, they are taken
   * back.
   */
  doubt(): void {
    if (this.#takenBy !== undefined) this.#state = 'foreign';
    else if (this.#state === 'known') this.#state = 'unknown';
    this.#takenBy = undefined;
  }

  /** The difference found by `compare`; undefined: none, or the rules were not ours alone. */
  async difference(
    config: RuleConfig,
    compare: Backend<Name>['difference'],
  ): Promise<string | undefined> {
    const steps = this.#steps;
    const isOurs = (): boolean => this.#state === 'known' && this.#takenBy === undefined;
    if (steps % 2 === 1 || !isOurs()) return undefined;
    const found = await compare(config, this.#map);
    return this.#steps === steps && isOurs() ? found : undefined;
  }

  /** Writes the differences; undefined if there are none. Rejects with KPNG_PORTAL_*. */
  async write(config: RuleConfig): Promise<Written<Name> | undefined> {
    if (this.#takenBy !== undefined) throw await this.#taken(this.#takenBy);
    try {
      return await this.#transact(config);
    } catch (error) {
      if (!isAboutContent(error)) throw error;
      await this.#leaveOutRefused(config, error);
      return this.#transact(config);
    }
  }

  /** Removes the rules unless another process has them. Rejects with KPNG_PORTAL_*. */
  remove(config: RuleConfig): Promise<void> {
    return this.#options.backend.remove(config);
  }

  async #transact(config: RuleConfig): Promise<Written<Name> | undefined> {
    const { backend } = this.#options;
    const changes = this.#map.changes();
    if (this.#state === 'known') {
      if (changes.length === 0) return undefined;
      // After a failure, the change may or may not have been applied.
      this.#state = 'unknown';
      try {
        await this.#unlessTaken(backend.change(config, changes, this.#map));
        return this.#written('change', changes);
      } catch (error) {
        if (!isAboutContent(error)) throw error;
      }
    }
    const reason = this.#state === 'foreign' ? 'start' : 'repair';
    await this.#unlessTaken(backend.replace(config, this.#map, this.#state === 'unknown'));
    return this.#written(reason, changes);
  }

  #written(reason: Written['reason'], changes: readonly ItemChange<Name>[]): Written<Name> {
    this.#state = 'known';
    this.#map.written();
    return { reason, changes };
  }

  async #unlessTaken(transaction: Promise<string | undefined>): Promise<void> {
    this.#steps += 1;
    try {
      this.#takenBy = await transaction;
    } finally {
      this.#steps += 1;
    }
    if (this.#takenBy !== undefined) throw await this.#taken(this.#takenBy);
  }

  async #taken(owner: string): Promise<KpngError> {
    const { backend, apart, pidOf } = this.#options;
    return takenError(backend.what, await pidOf(owner), apart);
  }

  /** Finds the service ports that the kernel rejects. Rejects if none of them is to blame. */
  async #leaveOutRefused(config: RuleConfig, error: ToolError): Promise<void> {
    const bad = await findUnacceptable(
      [...this.#wanted.keys()].filter((name) => !this.#refused.has(name)),
      (names) => this.#accepts(config, names),
      MAX_TRIALS,
    );
    const { code } = error;
    if (bad === undefined) {
      const message = `${error.message}; it refuses even the rules without any service`;
      throw new KpngError('KPNG_PORTAL_UNSUPPORTED', message, { cause: error });
    }
    for (const name of bad) {
      this.#map.update(this.#wanted.get(name) ?? [], []);
      const message = `${name} is left out; retried later: ${error.message}`;
      this.#refused.set(name, { servicePort: name, portal: undefined, code, message });
      if (!portalFailed.hasSubscribers) continue;
      const cause = new KpngError(code, message, { cause: error, servicePort: name });
      portalFailed.publish({ portal: this.#options.kind, error: cause });
    }
  }

  #accepts(config: RuleConfig, names: readonly string[]): Promise<boolean> {
    const some = new ItemMap<Name>();
    some.update([], this.#common);
    for (const name of names) some.update([], this.#wanted.get(name) ?? []);
    return this.#options.backend.accepts(config, some);
  }
}

function isAboutContent(error: unknown): error is ToolError {
  return error instanceof ToolError && error.blame === 'content';
}
