import type { Family } from '../../util/family.ts';
import type { PortRange } from '../../util/port-range.ts';
import type { AuditPolicy } from '../bounds.ts';
import type { Portal } from '../portal.ts';
import type { ProxyPort, Redirect } from '../redirect-plan.ts';

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

/** Where the sockets that all TCP services share are bound. Nothing from outside reaches these addresses directly. */
export const SHARED_ADDRESS: Readonly<Record<Family, string>> = { 4: '127.0.0.1', 6: '::1' };

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
  /** Only with `route`. A change replaces the rules: a chain has to be younger than the kernel's hook of bridges. */
  readonly hasBridges?: boolean;
}

/** For rules that only show whether the host accepts such. Its addresses are for documentation. */
export function trialConfig(families: readonly Family[]): RuleConfig {
  return {
    owner: 'check',
    families,
    targets: { 4: '192.0.2.1', 6: '2001:db8::1' },
    nodePortNetworks: { 4: ['192.0.2.1/32'], 6: ['2001:db8::1/128'] },
  };
}

/** An element of a named set: one of nftables, or a rule of iptables. */
export interface Element {
  readonly set: string;
  /** Unique within its set. */
  readonly key: string;
  readonly value: string;
}

export interface ElementChange {
  readonly set: string;
  readonly key: string;
  /** Undefined: the key did not exist. */
  readonly before: string | undefined;
  /** Undefined: the key is removed. */
  readonly after: string | undefined;
}

const NONE: readonly Element[] = [];

/**
 * The elements of each owner, and what differs from the last write. Owners are service ports, or, without a slash in
 * their name, parts of the portal. A change costs as much as its elements.
 */
export class Elements implements Iterable<Element> {
  readonly #byOwner = new Map<string, readonly Element[]>();
  /** The last written elements of owners that have changed since. */
  readonly #before = new Map<string, readonly Element[]>();

  set(owner: string, elements: readonly Element[]): void {
    const before = this.get(owner);
    if (before.length === 0 && elements.length === 0) return;
    if (!this.#before.has(owner)) this.#before.set(owner, before);
    if (elements.length === 0) this.#byOwner.delete(owner);
    // A copy has no spare capacity.
    else this.#byOwner.set(owner, [...elements]);
  }

  get(owner: string): readonly Element[] {
    return this.#byOwner.get(owner) ?? NONE;
  }

  get owners(): Iterable<string> {
    return this.#byOwner.keys();
  }

  [Symbol.iterator](): Iterator<Element> {
    return [...this.#byOwner.values()].flat().values();
  }

  get size(): number {
    return [...this].length;
  }

  bySet(): ReadonlyMap<string, readonly Element[]> {
    return Map.groupBy(this, ({ set }) => set);
  }

  /** The differences from the last write. A key may have moved from one owner to another. */
  changes(): ElementChange[] {
    const changes = new Map<string, ElementChange>();
    for (const before of this.#before.values()) {
      for (const { set, key, value } of before) {
        changes.set(`${set} ${key}`, { set, key, before: value, after: undefined });
      }
    }
    for (const owner of this.#before.keys()) {
      for (const { set, key, value } of this.get(owner)) {
        const before = changes.get(`${set} ${key}`)?.before;
        changes.set(`${set} ${key}`, { set, key, before, after: value });
      }
    }
    return [...changes.values()].filter(({ before, after }) => before !== after);
  }

  written(): void {
    this.#before.clear();
  }
}

/** The result of a connection through the rules: accepted, refused at once, or no answer. */
export type ProbeResult = 'alive' | 'gone' | 'silent';

export interface RuleCanary {
  /** Opens its ports and returns the elements that redirect to them. Rejects with a KpngError. */
  open(): Promise<Element[]>;
  /** Whether the rules of an owner exist: of this process, or of another one that runs. */
  probe(owner: string): Promise<ProbeResult>;
  /** Idempotent. */
  close(): void;
}

/** A comparison of the rules, or of a part of them, with the last write. */
export interface Comparison {
  readonly policy: AuditPolicy;
  /** The differences; undefined: none visible. */
  readonly difference: (config: RuleConfig, elements: Elements) => Promise<string | undefined>;
}

/**
 * A kind of rules: how it expresses redirects as elements, and writes these to the kernel. Each such call is one
 * transaction and rejects with a `ToolError`. Only reads may overlap.
 */
export interface Backend {
  readonly kind: Portal['kind'];
  /** What it writes, for messages: `the nftables table inet kpng-userspace`. */
  readonly what: string;
  /** How to give two processes separate rules, for a message. */
  readonly apart: string;
  /** Packets keep their destination, and sockets have it. Absent: they are sent to proxy ports. */
  readonly route?: TransparentRoute | undefined;
  readonly comparisons: readonly Comparison[];
  canary(config: RuleConfig): RuleCanary;
  /** `proxyPorts`: none with `listener`. */
  elements(
    name: string,
    redirects: readonly Redirect[],
    proxyPorts: readonly ProxyPort[],
  ): Element[];
  /** With `route`: the element for the port of the sockets that all TCP services share. */
  readonly listener?: (port: ProxyPort) => Element;
  /** Begins what `replace` needs besides the rules; absent: nothing. `replace` waits for it, and fails as it does. */
  readonly prepare?: ((config: RuleConfig) => void) | undefined;
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
  /** Removes the rules unless another process wrote them. */
  remove(config: RuleConfig): Promise<void>;
}
