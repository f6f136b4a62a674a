import { KpngError } from '../../errors.ts';
import type { Family } from '../../util/family.ts';
import type { ItemChange, Items } from './items.ts';

export const FAMILIES: readonly Family[] = [4, 6];

/** What rules depend on besides the services. It changes seldom, and then all rules are written again. */
export interface RuleConfig {
  /** Identifies the process that writes the rules; letters and digits. */
  readonly owner: string;
  /** Families that the host has. */
  readonly families: readonly Family[];
  /** The host address that packets are sent to, by family. Undefined: the host has only loopback addresses. */
  readonly targets: Readonly<Record<Family, string | undefined>>;
  /** Networks within which the node's own addresses have node ports. No two may overlap. */
  readonly nodePortNetworks: Readonly<Record<Family, readonly string[]>>;
}

/**
 * Writes items to the kernel, in its own way: each call is one transaction. Everything rejects with a
 * `ToolError` when it fails. Calls must not overlap, but for those that only look.
 */
export interface Backend<Name extends string> {
  /** What it writes, for messages: `the nftables table inet kpng-userspace`. */
  readonly what: string;
  /**
   * Replaces all rules of ours, whatever they were, without a moment in which there are none. With
   * `onlyOwn` not when another process of ours has written them: then it returns that one's owner.
   */
  replace(config: RuleConfig, items: Items<Name>, onlyOwn: boolean): Promise<string | undefined>;
  /**
   * Writes only what differs. Fails when the rules are gone, belong to another process, or differ from
   * what was written last. Where it costs less it replaces all rules, as with `onlyOwn`.
   */
  change(
    config: RuleConfig,
    changes: readonly ItemChange<Name>[],
    items: Items<Name>,
  ): Promise<string | undefined>;
  /** Whether the kernel would take the items. Changes nothing that packets meet. */
  wouldTake(config: RuleConfig, items: Items<Name>): Promise<boolean>;
  /** What differs between the kernel and what was written last; undefined: nothing that can be seen. */
  difference(config: RuleConfig, items: Items<Name>): Promise<string | undefined>;
  /** Removes the rules unless another process has written them. */
  remove(config: RuleConfig): Promise<void>;
}

/** Another process has taken the rules. `apart` says how to give each its own. */
export function takenError(what: string, pid: number | undefined, apart: string): KpngError {
  const who = pid === undefined ? 'another process' : `another process (${pid})`;
  return new KpngError(
    'KPNG_PORTAL_TAKEN',
    `${who} writes ${what} now; this one leaves it alone as long as that one runs. ` +
      `Stop one of them, or ${apart}`,
  );
}
