import { KpngError } from '../../errors.ts';
import { MAX_TRIALS } from '../bounds.ts';
import { portalFailed } from '../events.ts';
import type { Exec } from '../exec.ts';
import type { PortalProblem } from '../portal.ts';
import type { Element } from './elements.ts';
import type { NftFailure } from './failure.ts';
import { findUnacceptable } from './isolate.ts';
import { Ledger } from './ledger.ts';
import type { RuleConfig } from './rules.ts';
import { removeNftables } from './tool.ts';
import { ownerOf, takenError, wouldTake, Writer, type Written } from './writer.ts';

/**
 * The elements of each service port, and the table that they are written to. A service port that
 * the kernel does not take is left out, so that the others are served.
 *
 * Calls of `write` must not overlap.
 */
export class Table {
  readonly #exec: Exec;
  readonly #ledger = new Ledger();
  readonly #writer: Writer;
  /** Elements by service port, as they should be. */
  readonly #elements = new Map<string, readonly Element[]>();
  /** Service ports whose elements are not in the ledger, because the kernel does not take them. */
  readonly #refused = new Map<string, PortalProblem>();
  #takenBy: string | undefined;

  constructor(exec: Exec) {
    this.#exec = exec;
    this.#writer = new Writer(exec, this.#ledger);
  }

  /** What is, or is to be, in the table. */
  get ledger(): Pick<Ledger, 'elements'> {
    return this.#ledger;
  }

  /** The process that writes the table instead of this one, if there is one. */
  get takenBy(): string | undefined {
    return this.#takenBy;
  }

  /** One problem for each service port that is left out. */
  get refused(): PortalProblem[] {
    return [...this.#refused.values()];
  }

  /** Replaces the elements of service ports; an empty list is for one that is gone. */
  replace(elements: ReadonlyMap<string, readonly Element[]>): void {
    const remove: Element[] = [];
    const add: Element[] = [];
    for (const [name, after] of elements) {
      remove.push(...(this.#elements.get(name) ?? []));
      add.push(...after);
      this.#refused.delete(name);
      if (after.length === 0) this.#elements.delete(name);
      else this.#elements.set(name, after);
    }
    this.#ledger.update(remove, add);
  }

  /** Adds elements that belong to no service port. */
  add(elements: readonly Element[]): void {
    this.#ledger.update([], elements);
  }

  /** Service ports that were left out are tried again by the next write. */
  readmit(): void {
    this.replace(
      new Map([...this.#refused.keys()].map((name) => [name, this.#elements.get(name) ?? []])),
    );
  }

  /**
   * The next write replaces the table, unless another process has taken it; if this was known
   * before, the table is taken back.
   */
  doubt(): void {
    if (this.#takenBy === undefined) this.#writer.doubt();
    else this.#writer.takeOver();
    this.#takenBy = undefined;
  }

  /** Writes what differs; undefined when nothing does. Rejects with KPNG_PORTAL_* when it fails. */
  async write(config: RuleConfig): Promise<Written | undefined> {
    if (this.#takenBy !== undefined) throw takenError(config.table);
    let result = await this.#writer.write(config);
    if (!result.ok && 'failure' in result && result.failure.blame === 'content') {
      await this.#leaveOutRefused(config, result.failure);
      result = await this.#writer.write(config);
    }
    if (result.ok) return result.written;
    if ('failure' in result) throw result.failure.error;
    this.#takenBy = result.takenBy;
    throw takenError(config.table);
  }

  /** Removes the table unless another process has it. Rejects with KPNG_PORTAL_* when it cannot. */
  async remove({ table, owner }: RuleConfig): Promise<void> {
    const writer = (await ownerOf(this.#exec, table)) ?? owner;
    if (writer === owner) await removeNftables(this.#exec, table);
  }

  /** Finds the service ports that the kernel does not take. Rejects when it is not for any of them. */
  async #leaveOutRefused(config: RuleConfig, { error }: NftFailure): Promise<void> {
    const bad = await findUnacceptable(
      [...this.#elements.keys()].filter((name) => !this.#refused.has(name)),
      (names) => this.#wouldTake(config, names),
      MAX_TRIALS,
    );
    if (bad === undefined) {
      const message = `${error.message}; it refuses even the rules without any service`;
      throw new KpngError('KPNG_PORTAL_UNSUPPORTED', message, { cause: error });
    }
    for (const name of bad) {
      this.#ledger.update(this.#elements.get(name) ?? [], []);
      const { code } = error;
      const message = `${name} is left out, and tried again later: ${error.message}`;
      this.#refused.set(name, { servicePort: name, portal: undefined, code, message });
      if (!portalFailed.hasSubscribers) continue;
      const cause = new KpngError(code, message, { cause: error, servicePort: name });
      portalFailed.publish({ portal: 'nftables', error: cause });
    }
  }

  #wouldTake(config: RuleConfig, names: readonly string[]): Promise<boolean> {
    const ledger = new Ledger();
    for (const name of names) ledger.update([], this.#elements.get(name) ?? []);
    return wouldTake(this.#exec, config, ledger);
  }
}
