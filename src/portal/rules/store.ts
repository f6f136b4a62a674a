import { KpngError, type ErrorCode } from '../../errors.ts';
import type { RuleConfig } from './config.ts';
import type { ItemChange, LedgerView } from './ledger.ts';

/**
 * Why rules could not be written:
 *
 * - `host`: nothing that was to be written could be the cause, such as a missing permission
 * - `content`: the kernel or the tool does not take something that was; it may be out of step with
 *   what the kernel has
 */
export type Blame = 'host' | 'content';

/** Rules could not be written. */
export class RuleError extends KpngError {
  readonly blame: Blame;

  constructor(blame: Blame, code: ErrorCode, message: string, options: { cause?: unknown } = {}) {
    super(code, message, options);
    this.blame = blame;
  }
}

/**
 * Writes the items of a ledger to the kernel, in its own way. Everything rejects with a `RuleError` when it
 * fails. Calls must not overlap.
 */
export interface RuleStore<Name extends string> {
  /** What it writes, for messages: `the nftables table inet kpng-userspace`. */
  readonly what: string;
  /**
   * Replaces all rules of ours, whatever they were, without a moment in which there are none. With
   * `onlyOwn` not when another process of ours has written them: then it returns that one's owner.
   */
  replace(
    config: RuleConfig,
    ledger: LedgerView<Name>,
    onlyOwn: boolean,
  ): Promise<string | undefined>;
  /**
   * Writes only what differs. Fails when the rules are gone, belong to another process, or differ from
   * what was written last. Where it costs less it replaces all rules, as with `onlyOwn`.
   */
  change(
    config: RuleConfig,
    changes: readonly ItemChange<Name>[],
    ledger: LedgerView<Name>,
  ): Promise<string | undefined>;
  /** Whether the kernel would take the items. Changes nothing that packets meet. */
  wouldTake(config: RuleConfig, ledger: LedgerView<Name>): Promise<boolean>;
  /**
   * What differs between the kernel and what was written last; undefined: nothing that can be seen. It may
   * run while rules are written; then it may find differences that are none.
   */
  difference(config: RuleConfig, ledger: LedgerView<Name>): Promise<string | undefined>;
  /** Removes the rules unless another process has written them. */
  remove(config: RuleConfig): Promise<void>;
}

/**
 * What is told when another process has taken the rules. `pid` is that process, if it is known; `apart`
 * says how to give each its own.
 */
export function takenError(what: string, pid: number | undefined, apart: string): KpngError {
  const who = pid === undefined ? 'another process' : `another process (${pid})`;
  return new KpngError(
    'KPNG_PORTAL_TAKEN',
    `${who} writes ${what} now; this one leaves it alone as long as that one runs. ` +
      `Stop one of them, or ${apart}`,
  );
}
