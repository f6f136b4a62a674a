import type { RuleConfig } from './config.ts';
import type { ItemChange, Ledger } from './ledger.ts';
import { RuleError, type RuleStore } from './store.ts';

/** What a write that succeeded has done. */
export interface Written<Name extends string = string> {
  readonly reason: 'start' | 'change' | 'repair';
  /** The items that differ from what was last written; for `start`, all of them. */
  readonly changes: readonly ItemChange<Name>[];
}

export type WriteResult<Name extends string> =
  | { readonly ok: true; readonly written: Written<Name> | undefined }
  | { readonly ok: false; readonly failure: RuleError }
  /** The rules belong to another process now, which writes them. */
  | { readonly ok: false; readonly takenBy: string };

/**
 * - `foreign`: whatever is there was written by somebody else, or by a process that has ended
 * - `known`: there is what the ledger says was written
 * - `unknown`: we have written the rules, but they may have changed since
 */
type RuleState = 'foreign' | 'known' | 'unknown';

/**
 * Brings the rules in step with the ledger: by what differs as long as it knows what is there, and by
 * replacing them all otherwise.
 *
 * Calls must not overlap.
 */
export class Writer<Name extends string> {
  readonly #store: RuleStore<Name>;
  readonly #ledger: Ledger<Name>;
  #state: RuleState = 'foreign';

  constructor(store: RuleStore<Name>, ledger: Ledger<Name>) {
    this.#store = store;
    this.#ledger = ledger;
  }

  /** The rules may not be any more what was written. */
  doubt(): void {
    if (this.#state === 'known') this.#state = 'unknown';
  }

  /** The rules are to be ours again, whoever has written them. */
  takeOver(): void {
    this.#state = 'foreign';
  }

  /** Resolves with `written: undefined` when there was nothing to do. */
  async write(config: RuleConfig): Promise<WriteResult<Name>> {
    const changes = this.#ledger.changes();
    if (this.#state === 'known') {
      if (changes.length === 0) return { ok: true, written: undefined };
      const outcome = await attempt(this.#store.change(config, changes, this.#ledger));
      if (outcome === undefined) return this.#written('change', changes);
      // Whatever the reason is, the transaction may or may not have been carried out.
      this.#state = 'unknown';
      if (typeof outcome === 'string') return { ok: false, takenBy: outcome };
      if (outcome.blame === 'host') return { ok: false, failure: outcome };
    }
    const reason = this.#state === 'foreign' ? 'start' : 'repair';
    const onlyOwn = this.#state === 'unknown';
    const outcome = await attempt(this.#store.replace(config, this.#ledger, onlyOwn));
    if (outcome instanceof RuleError) return { ok: false, failure: outcome };
    return outcome === undefined ? this.#written(reason, changes) : { ok: false, takenBy: outcome };
  }

  #written(reason: Written['reason'], changes: readonly ItemChange<Name>[]): WriteResult<Name> {
    this.#state = 'known';
    this.#ledger.written();
    return { ok: true, written: { reason, changes } };
  }
}

/** What it resolves with, or why it failed. What is no failure of the rules is thrown. */
async function attempt<T>(action: Promise<T>): Promise<T | RuleError> {
  try {
    return await action;
  } catch (error) {
    if (error instanceof RuleError) return error;
    throw error;
  }
}
