import { KpngError } from '../../errors.ts';
import { MAX_TRIALS } from '../bounds.ts';
import { portalFailed } from '../events.ts';
import type { Portal, PortalProblem } from '../portal.ts';
import type { RuleConfig } from './config.ts';
import { findUnacceptable } from './isolate.ts';
import { Ledger, type Item, type LedgerView } from './ledger.ts';
import { takenError, type RuleError, type RuleStore } from './store.ts';
import { Writer, type Written } from './writer.ts';

export interface RuleBookOptions<Name extends string> {
  readonly kind: Portal['kind'];
  readonly store: RuleStore<Name>;
  /** How two processes can have rules of their own: `give each a table of its own`. */
  readonly apart: string;
  /** The number of the process that writes rules under a name, if it can be found out. */
  readonly pidOf: (owner: string) => Promise<number | undefined>;
}

/**
 * The items of each service port, and the rules that they are written to. A service port that
 * the kernel does not take is left out, so that the others are served.
 *
 * Calls of `write` must not overlap.
 */
export class RuleBook<Name extends string> {
  readonly #options: RuleBookOptions<Name>;
  readonly #ledger = new Ledger<Name>();
  readonly #writer: Writer<Name>;
  /** Items by service port, as they should be. */
  readonly #items = new Map<string, readonly Item<Name>[]>();
  /** Items that belong to no service port. */
  readonly #common: Item<Name>[] = [];
  /** Service ports whose items are not in the ledger, because the kernel does not take them. */
  readonly #refused = new Map<string, PortalProblem>();
  #takenBy: string | undefined;

  constructor(options: RuleBookOptions<Name>) {
    this.#options = options;
    this.#writer = new Writer(options.store, this.#ledger);
  }

  /** What is, or is to be, in the rules. */
  get ledger(): LedgerView<Name> {
    return this.#ledger;
  }

  /** The process that writes the rules instead of this one, if there is one. */
  get takenBy(): string | undefined {
    return this.#takenBy;
  }

  /** One problem for each service port that is left out. */
  get refused(): PortalProblem[] {
    return [...this.#refused.values()];
  }

  /** Replaces the items of service ports; an empty list is for one that is gone. */
  replace(items: ReadonlyMap<string, readonly Item<Name>[]>): void {
    const remove: Item<Name>[] = [];
    const add: Item<Name>[] = [];
    for (const [name, after] of items) {
      remove.push(...(this.#items.get(name) ?? []));
      add.push(...after);
      this.#refused.delete(name);
      if (after.length === 0) this.#items.delete(name);
      else this.#items.set(name, after);
    }
    this.#ledger.update(remove, add);
  }

  /** Adds items that belong to no service port. */
  add(items: readonly Item<Name>[]): void {
    this.#common.push(...items);
    this.#ledger.update([], items);
  }

  /** Service ports that were left out are tried again by the next write. */
  readmit(): void {
    this.replace(
      new Map([...this.#refused.keys()].map((name) => [name, this.#items.get(name) ?? []])),
    );
  }

  /**
   * The next write replaces the rules, unless another process has taken them; if this was known
   * before, they are taken back.
   */
  doubt(): void {
    if (this.#takenBy === undefined) this.#writer.doubt();
    else this.#writer.takeOver();
    this.#takenBy = undefined;
  }

  /** Writes what differs; undefined when nothing does. Rejects with KPNG_PORTAL_* when it fails. */
  async write(config: RuleConfig): Promise<Written<Name> | undefined> {
    if (this.#takenBy !== undefined) throw await this.#taken(this.#takenBy);
    let result = await this.#writer.write(config);
    if (!result.ok && 'failure' in result && result.failure.blame === 'content') {
      await this.#leaveOutRefused(config, result.failure);
      result = await this.#writer.write(config);
    }
    if (result.ok) return result.written;
    if ('failure' in result) throw result.failure;
    this.#takenBy = result.takenBy;
    throw await this.#taken(result.takenBy);
  }

  async #taken(owner: string): Promise<KpngError> {
    const { store, apart, pidOf } = this.#options;
    return takenError(store.what, await pidOf(owner), apart);
  }

  /** Removes the rules unless another process has them. Rejects with KPNG_PORTAL_* when it cannot. */
  remove(config: RuleConfig): Promise<void> {
    return this.#options.store.remove(config);
  }

  /** Finds the service ports that the kernel does not take. Rejects when it is not for any of them. */
  async #leaveOutRefused(config: RuleConfig, error: RuleError): Promise<void> {
    const bad = await findUnacceptable(
      [...this.#items.keys()].filter((name) => !this.#refused.has(name)),
      (names) => this.#wouldTake(config, names),
      MAX_TRIALS,
    );
    if (bad === undefined) {
      const message = `${error.message}; it refuses even the rules without any service`;
      throw new KpngError('KPNG_PORTAL_UNSUPPORTED', message, { cause: error });
    }
    for (const name of bad) {
      this.#ledger.update(this.#items.get(name) ?? [], []);
      const { code } = error;
      const message = `${name} is left out, and tried again later: ${error.message}`;
      this.#refused.set(name, { servicePort: name, portal: undefined, code, message });
      if (!portalFailed.hasSubscribers) continue;
      const cause = new KpngError(code, message, { cause: error, servicePort: name });
      portalFailed.publish({ portal: this.#options.kind, error: cause });
    }
  }

  #wouldTake(config: RuleConfig, names: readonly string[]): Promise<boolean> {
    const ledger = new Ledger<Name>();
    ledger.update([], this.#common);
    for (const name of names) ledger.update([], this.#items.get(name) ?? []);
    return this.#options.store.wouldTake(config, ledger);
  }
}
