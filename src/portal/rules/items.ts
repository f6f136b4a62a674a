import { KpngError } from '../../errors.ts';
import type { Family } from '../../util/family.ts';
import type { PortRange } from '../../util/port-range.ts';
import type { FlowAddress } from '../flows.ts';
import type { ProxyPort, Redirect } from '../redirect-plan.ts';

/** One entry of a named set: an element of nftables, or a rule of iptables. */
export interface Item<Name extends string = string> {
  readonly set: Name;
  /** Unique within its set. */
  readonly key: string;
  /** The values under the key; may be empty. */
  readonly value: string;
}

/** The change of one key. */
export interface ItemChange<Name extends string = string> {
  readonly set: Name;
  readonly key: string;
  /** Undefined: the key did not exist. */
  readonly before: string | undefined;
  /** Undefined: the key is removed. */
  readonly after: string | undefined;
}

/** The desired items, by set. */
export interface Items<Name extends string> {
  /** The items of one set, as key and value. */
  items(set: Name): ReadonlyMap<string, string>;
}

const NOTHING: ReadonlyMap<string, string> = new Map();

/** The desired items, and those that differ from the last write. Each operation costs as much as its changes. */
export class ItemMap<Name extends string = string> implements Items<Name> {
  readonly #wanted = new Map<Name, Map<string, string>>();
  /** The last written items of keys that may differ now; undefined: none. */
  readonly #before = new Map<Name, Map<string, string | undefined>>();

  /** Removals count first, so that a key can move from one service port to another. */
  update(remove: Iterable<Item<Name>>, add: Iterable<Item<Name>>): void {
    for (const { set, key } of remove) this.#put(set, key, undefined);
    for (const { set, key, value } of add) this.#put(set, key, value);
  }

  /** The differences from the last write. */
  changes(): ItemChange<Name>[] {
    return [...this.#before].flatMap(([set, keys]) =>
      [...keys]
        .map(([key, before]) => ({ set, key, before, after: this.items(set).get(key) }))
        .filter(({ before, after }) => before !== after),
    );
  }

  /** Everything has been written. */
  written(): void {
    this.#before.clear();
  }

  items(set: Name): ReadonlyMap<string, string> {
    return this.#wanted.get(set) ?? NOTHING;
  }

  #put(set: Name, key: string, value: string | undefined): void {
    let wanted = this.#wanted.get(set);
    if (wanted === undefined) this.#wanted.set(set, (wanted = new Map()));
    const now = wanted.get(key);
    if (now === value) return;
    let before = this.#before.get(set);
    if (before === undefined) this.#before.set(set, (before = new Map()));
    if (!before.has(key)) before.set(key, now);
    if (value === undefined) wanted.delete(key);
    else wanted.set(key, value);
  }
}

/** Sets that are not written to the kernel. */
export type FlowSet = `flows${Family}`;

/**
 * The address of each UDP portal: `10.0.0.1 53` or `node 30053`, with the proxy port, or nothing if it is rejected.
 */
export function flowItemsOf(redirects: readonly Redirect[]): Item<FlowSet>[] {
  return redirects.flatMap(({ family, portal, proxyPort }) => {
    if (portal.protocol !== 'UDP') return [];
    const key = `${portal.address ?? 'node'} ${portal.port}`;
    return [{ set: `flows${family}` as const, key, value: String(proxyPort ?? '') }];
  });
}

/**
 * Addresses with possibly stale UDP flows: of the changes; `all`, if rules were missing or foreign; or all,
 * `removed`.
 */
export function flowAddresses(
  items: Items<FlowSet>,
  changes: readonly ItemChange[] | 'all' | 'removed',
): FlowAddress[] {
  return FAMILIES.flatMap((family) => {
    const set = `flows${family}` as const;
    if (typeof changes === 'string') {
      const now = (value: string): string => (changes === 'all' ? value : '');
      return [...items.items(set)].map(([key, value]) =>
        flowAddressOf(family, key, now(value), 'unknown'),
      );
    }
    return changes
      .filter((change) => change.set === set)
      .map(({ key, before = '', after = '' }) =>
        flowAddressOf(family, key, after, portOf(before) ?? 'none'),
      );
  });
}

function flowAddressOf(
  family: Family,
  key: string,
  now: string,
  previousPort: FlowAddress['previousPort'],
): FlowAddress {
  const [address, port] = key.split(' ');
  return {
    family,
    address: address === 'node' ? undefined : address,
    port: Number(port),
    proxyPort: portOf(now),
    previousPort,
  };
}

/** Whether a set is only about flows. */
export function isFlowSet(set: string): boolean {
  return set.startsWith('flows');
}

function portOf(value: string): number | undefined {
  return value === '' ? undefined : Number(value);
}

export const FAMILIES: readonly Family[] = [4, 6];

/** How marked packets are delivered to this host, whatever their destination. */
export interface TransparentRoute {
  /** One bit or several, which other programs do not use. */
  readonly mark: number;
  /** Number of the routing table. */
  readonly table: number;
  /** Of the routing rule that sends marked packets to the table. */
  readonly priority: number;
  /** Whether connection tracking ignores service traffic. Default: no. */
  readonly notrack?: boolean;
  /** Ports that the kernel chooses for sockets. Default: those that Linux has by default. */
  readonly kernelPorts?: PortRange;
}

/** How packets reach sockets unchanged. */
export interface Transparent<Name extends string> {
  readonly route: TransparentRoute;
  /** Where the sockets that all TCP services share are bound. */
  readonly addresses: Readonly<Record<Family, string>>;
  /** The item for their port. */
  listener(port: ProxyPort): Item<Name>;
}

/** Inputs of the rules besides the services. They seldom change; then all rules are rewritten. */
export interface RuleConfig {
  /** Identifies the process that writes the rules; letters and digits. */
  readonly owner: string;
  /** Families that the host has. */
  readonly families: readonly Family[];
  /** The host address that packets are sent to, by family. Undefined: the host has only loopback addresses. */
  readonly targets: Readonly<Record<Family, string | undefined>>;
  /** Networks of the node addresses with node ports, without overlaps. */
  readonly nodePortNetworks: Readonly<Record<Family, readonly string[]>>;
  /** Packets are delivered unchanged to transparent sockets. Absent: they are redirected to `targets`. */
  readonly route?: TransparentRoute;
}

/**
 * Writes items to the kernel; each call is one transaction and rejects with a `ToolError`. Only reads may overlap.
 */
export interface Backend<Name extends string> {
  /** What it writes, for messages: `the nftables table inet kpng-userspace`. */
  readonly what: string;
  /** Replaces all our rules, without a gap. `onlyOwn`: not those of another process; returns its owner then. */
  replace(config: RuleConfig, items: Items<Name>, onlyOwn: boolean): Promise<string | undefined>;
  /**
   * Writes the difference. Fails if the rules are missing, foreign or changed. May replace everything, as with
   * `onlyOwn`.
   */
  change(
    config: RuleConfig,
    changes: readonly ItemChange<Name>[],
    items: Items<Name>,
  ): Promise<string | undefined>;
  /** Whether the kernel would accept the items. Does not affect packets. */
  accepts(config: RuleConfig, items: Items<Name>): Promise<boolean>;
  /** The differences between the kernel and the last write; undefined: none visible. */
  difference(config: RuleConfig, items: Items<Name>): Promise<string | undefined>;
  /** Removes the rules unless another process wrote them. */
  remove(config: RuleConfig): Promise<void>;
}

/** Another process has taken over the rules. `apart`: how to give each separate ones. */
export function takenError(what: string, pid: number | undefined, apart: string): KpngError {
  const who = pid === undefined ? 'another process' : `another process (${pid})`;
  return new KpngError(
    'KPNG_PORTAL_TAKEN',
    `${who} writes ${what} now; this process leaves it unchanged while that one runs. ` +
      `Stop one of them, or ${apart}`,
  );
}
