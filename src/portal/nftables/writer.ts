import { KpngError } from '../../errors.ts';
import type { Exec } from '../exec.ts';
import { ExecError } from '../exec.ts';
import { WRITE_TIMEOUT_MS } from '../bounds.ts';
import { nftFailure, type NftFailure } from './failure.ts';
import type { ElementChange, Ledger } from './ledger.ts';
import type { RuleConfig } from './rules.ts';
import { renderDelta, renderFull } from './script.ts';

/** What a write that succeeded has done. */
export interface Written {
  readonly reason: 'start' | 'change' | 'repair';
  /** The elements that differ from what was last written; for `start`, all of them. */
  readonly changes: readonly ElementChange[];
}

export type WriteResult =
  | { readonly ok: true; readonly written: Written | undefined }
  | { readonly ok: false; readonly failure: NftFailure }
  /** The table belongs to another process now, which writes it. */
  | { readonly ok: false; readonly takenBy: string };

/**
 * - `foreign`: whatever is there was written by somebody else, or by a process that has ended
 * - `known`: the table holds what the ledger says was written
 * - `unknown`: we have written the table, but it may have changed since
 */
type TableState = 'foreign' | 'known' | 'unknown';

/**
 * Brings the table in step with the ledger: by what differs as long as it knows what is there, and by
 * replacing the whole table otherwise. It reads the table only when a write has failed or `doubt`
 * was called, and then only to see whose it is.
 *
 * Calls must not overlap.
 */
export class Writer {
  readonly #exec: Exec;
  readonly #ledger: Ledger;
  #state: TableState = 'foreign';

  constructor(exec: Exec, ledger: Ledger) {
    this.#exec = exec;
    this.#ledger = ledger;
  }

  /** The table may not hold any more what was written. */
  doubt(): void {
    if (this.#state === 'known') this.#state = 'unknown';
  }

  /** The table is to be ours again, whoever has written it. */
  takeOver(): void {
    this.#state = 'foreign';
  }

  /** Resolves with `written: undefined` when there was nothing to do. */
  async write(config: RuleConfig): Promise<WriteResult> {
    const changes = this.#ledger.changes();
    if (this.#state === 'known') {
      if (changes.length === 0) return { ok: true, written: undefined };
      const failure = await this.#run(renderDelta(config, changes), config, 'changing');
      if (failure === undefined) return this.#written('change', changes);
      // Whatever the reason is, the transaction may or may not have been carried out.
      this.#state = 'unknown';
      if (failure.blame === 'host') return { ok: false, failure };
    }
    if (this.#state === 'unknown') {
      const owner = await ownerOf(this.#exec, config.table);
      if (owner !== undefined && owner !== config.owner) return { ok: false, takenBy: owner };
    }
    const reason = this.#state === 'foreign' ? 'start' : 'repair';
    const failure = await this.#run(renderFull(config, this.#ledger), config, 'writing');
    return failure === undefined ? this.#written(reason, changes) : { ok: false, failure };
  }

  #written(reason: Written['reason'], changes: readonly ElementChange[]): WriteResult {
    this.#state = 'known';
    this.#ledger.written();
    return { ok: true, written: { reason, changes } };
  }

  async #run(
    stdin: string,
    { table }: RuleConfig,
    doing: 'changing' | 'writing',
  ): Promise<NftFailure | undefined> {
    try {
      await this.#exec({ file: 'nft', args: ['-f', '-'], stdin, timeoutMs: WRITE_TIMEOUT_MS });
      return undefined;
    } catch (cause) {
      return nftFailure(cause, `${doing} the nftables table inet ${table}`);
    }
  }
}

/**
 * Whether nft and the kernel would take the elements of a ledger. Changes nothing.
 */
export async function wouldTake(exec: Exec, config: RuleConfig, ledger: Ledger): Promise<boolean> {
  const stdin = renderFull(config, ledger);
  try {
    await exec({ file: 'nft', args: ['-c', '-f', '-'], stdin, timeoutMs: WRITE_TIMEOUT_MS });
    return true;
  } catch (cause) {
    const { blame, error } = nftFailure(cause, `checking the nftables table inet ${config.table}`);
    if (blame === 'host') throw error;
    return false;
  }
}

/** Who has written the table; undefined when there is none, or when it does not say. */
export async function ownerOf(exec: Exec, table: string): Promise<string | undefined> {
  try {
    const args = ['--terse', 'list', 'table', 'inet', table];
    const { stdout } = await exec({ file: 'nft', args, timeoutMs: WRITE_TIMEOUT_MS });
    return /^\s*chain owner-(\w+) /m.exec(stdout)?.[1];
  } catch (cause) {
    // No table, or one that cannot be read: writing will tell.
    if (cause instanceof ExecError) return undefined;
    throw cause;
  }
}

/** What is told when another process has taken the table. */
export function takenError(table: string): KpngError {
  return new KpngError(
    'KPNG_PORTAL_TAKEN',
    `another process writes the nftables table inet ${table} now; this one leaves it alone as long as ` +
      'that one runs. Stop one of them, or give each a table of its own',
  );
}
