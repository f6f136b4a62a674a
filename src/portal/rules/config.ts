import type { Family } from '../../util/family.ts';

/** What rules depend on besides the services. All of it changes seldom, and then everything is written anew. */
export interface RuleConfig {
  /** Tells the process that writes the rules; letters and digits. */
  readonly owner: string;
  /** Families that the host has. */
  readonly families: readonly Family[];
  /**
   * Where packets are sent, by family: an address of the host. Undefined: the host has only
   * loopback addresses of the family.
   */
  readonly targets: Readonly<Record<Family, string | undefined>>;
  /** Networks within which the node's own addresses have node ports. No two may overlap. */
  readonly nodePortNetworks: Readonly<Record<Family, readonly string[]>>;
}

export const FAMILIES: readonly Family[] = [4, 6];
