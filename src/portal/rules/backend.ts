import type { Family } from '../../util/family.ts';
import type { PortRange } from '../../util/port-range.ts';
import type { ElementChange, Elements } from './elements.ts';

export const FAMILIES: readonly Family[] = [4, 6];

/** How marked packets are delivered to this host, whatever their destination. */
export interface TransparentRoute {
  /** One bit or several, which other programs do not use. */
  readonly mark: number;
  readonly table: number;
  /** Of the routing rule that sends marked packets to the table. */
  readonly priority: number;
  /** Whether connection tracking ignores service traffic. Default: no. */
  readonly notrack?: boolean;
  /** Ports that the kernel chooses for sockets. Default: those that Linux has by default. */
  readonly kernelPorts?: PortRange;
}

/** Inputs of the rules besides the services. They seldom change; then all rules are rewritten. */
export interface RuleConfig {
  /** Identifies the process that writes the rules; letters and digits. */
  readonly owner: string;
  readonly families: readonly Family[];
  /** The host address that packets are sent to, by family. Undefined: the host has only loopback addresses. */
  readonly targets: Readonly<Record<Family, string | undefined>>;
  /** Networks of the node addresses with node ports, without overlaps. */
  readonly nodePortNetworks: Readonly<Record<Family, readonly string[]>>;
  /** Packets are delivered unchanged to transparent sockets. Absent: they are redirected to `targets`. */
  readonly route?: TransparentRoute;
}

/**
 * Writes elements to the kernel; each call is one transaction and rejects with a `ToolError`. Only reads may overlap.
 */
export interface Backend {
  /** What it writes, for messages: `the nftables table inet kpng-userspace`. */
  readonly what: string;
  /** Replaces all our rules, without a gap. `onlyOwn`: not those of another process; returns its owner then. */
  replace(config: RuleConfig, elements: Elements, onlyOwn: boolean): Promise<string | undefined>;
  /**
   * Writes the difference. Fails if the rules are missing, foreign or changed. May replace everything, as with
   * `onlyOwn`.
   */
  change(
    config: RuleConfig,
    changes: readonly ElementChange[],
    elements: Elements,
  ): Promise<string | undefined>;
  /** Whether the kernel would accept the elements. Does not affect packets. */
  accepts(config: RuleConfig, elements: Elements): Promise<boolean>;
  /** The differences between the kernel and the last write; undefined: none visible. */
  difference(config: RuleConfig, elements: Elements): Promise<string | undefined>;
  /** Removes the rules unless another process wrote them. */
  remove(config: RuleConfig): Promise<void>;
}
