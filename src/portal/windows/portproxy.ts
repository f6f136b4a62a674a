/** The portal with `netsh interface portproxy`: its rules, and the netsh commands that change them. */
import { KpngError } from '../../errors.ts';
import { familyOf, isWildcard } from '../../util/family.ts';
import { AddressPortal, type AddressPortalOptions } from '../address.ts';
import { portalFailed, portalWritten } from '../events.ts';
import type { Exec } from '../exec.ts';
import type { Listener } from '../listen-plan.ts';
import type { PortAllocator } from '../proxy-ports.ts';
import {
  type BoundPorts,
  type PortalProblem,
  type PortalSpec,
  portalText,
  type ServicePortPortals,
} from '../portal.ts';
import type { AddressLedger } from './ledger.ts';
import { runAll, runNetsh } from './netsh.ts';

/** Redirects TCP connections from an address and port to another. */
export interface ProxyRule {
  /** Unique in Windows: type, address and port, as `v4tov4 10.96.0.1 80`; the address `*` means all of the family. */
  readonly key: string;
  /** Address and port, as `127.0.0.1 36000`. */
  readonly target: string;
  readonly servicePort: string;
}

/** Adds a rule, or changes its target; without a target, deletes it. */
function ruleArgs(key: string, target?: string): string[] {
  const [type = '', address, port] = key.split(' ');
  const [toAddress, toPort] = target?.split(' ') ?? [];
  const to = target === undefined ? [] : [`connectaddress=${toAddress}`, `connectport=${toPort}`];
  const args = [type, `listenaddress=${address}`, `listenport=${port}`, ...to];
  const verb = target === undefined ? 'delete' : 'add';
  return ['interface', 'portproxy', verb, ...args, 'protocol=tcp'];
}

/** Parses a listing in any language: four columns, two of which are ports. Returns targets by key. */
export function readRules(text: string, type: string): [key: string, target: string][] {
  return text.split('\n').flatMap((line): [string, string][] => {
    const [, address, port, target] = /^(\S+)\s+(\d+)\s+(\S+\s+\d+)$/.exec(line.trim()) ?? [];
    if (target === undefined) return [];
    return [[`${type} ${address} ${port}`, target.replace(/\s+/, ' ')]];
  });
}

/** Our portproxy rules. They outlive boots, so a ledger records which are ours. Foreign rules are never touched. */
export class RuleStore {
  readonly #exec: Exec;
  readonly #ledger: AddressLedger;
  /** The targets of our rules as last written; undefined: unknown. */
  #written: Map<string, string> | undefined;
  /** Those of other programs. */
  readonly #foreign = new Map<string, string>();

  constructor(exec: Exec, ledger: AddressLedger) {
    this.#exec = exec;
    this.#ledger = ledger;
  }

  /**
   * Replaces all our rules by `wanted`, in one run of netsh. `conflicts`: those left out, with the target of another
   * program's rule. Rejects with KPNG_PORTAL_*.
   */
  async write(wanted: readonly ProxyRule[]) {
    const before = this.#written ?? (await this.#list());
    const conflicts: ProxyRule[] = [];
    const after = new Map<string, string>();
    for (const rule of wanted) {
      const target = this.#foreign.get(rule.key);
      if (target === undefined) after.set(rule.key, rule.target);
      else conflicts.push({ ...rule, target });
    }
    const add = [...after].filter(([key, target]) => before.get(key) !== target);
    const remove = [...before.keys()].filter((key) => !after.has(key));
    const commands = new Map(remove.map((key) => [key, ruleArgs(key)]));
    for (const [key, target] of add) commands.set(key, ruleArgs(key, target));
    const textOf = (key = ''): string =>
      commands.get(key)?.slice(1).join(' ') ?? `changing ${commands.size} portproxy rules`;
    // Until it has finished, the state is unknown.
    this.#written = undefined;
    await this.#ledger.keep([...before.keys(), ...after.keys()]);
    const left = async () => commands.keys();
    // netsh exits with 1 if there is nothing to remove.
    const isFine = async (key: string) => !after.has(key);
    for (const error of (await runAll(this.#exec, commands, textOf, left, isFine)).values())
      throw error;
    await this.#ledger.keep(after.keys());
    this.#written = after;
    return { added: add.length, removed: remove.length, conflicts };
  }

  async #list(): Promise<Map<string, string>> {
    await this.#ledger.load();
    const ours = new Map<string, string>();
    this.#foreign.clear();
    for (const type of ['v4tov4', 'v4tov6', 'v6tov4', 'v6tov6']) {
      const doing = `listing the portproxy rules ${type}`;
      const args = ['interface', 'portproxy', 'show', type];
      const printed = await runNetsh(this.#exec, args, doing);
      for (const [key, target] of readRules(printed, type)) {
        (this.#ledger.addresses.has(key) ? ours : this.#foreign).set(key, target);
      }
    }
    await this.#ledger.keep(ours.keys());
    return ours;
  }
}

export interface PortProxyOptions {
  /** Who has which address, and the interface that gets them. */
  readonly addresses: AddressPortalOptions;
  readonly store: RuleStore;
  readonly allocator: PortAllocator;
  /** IP literal of the proxy ports; `0.0.0.0` and `::` mean the loopback address. */
  readonly bindAddress: string;
}

/**
 * Redirects TCP to proxy ports with `netsh interface portproxy`, for hosts where service addresses cannot be listened
 * on.
 *
 * The IP Helper service dials, so the proxy sees the host as client: affinity cannot distinguish clients, and service
 * ports with source ranges, like UDP, listen on their addresses.
 */
export class PortProxyPortal extends AddressPortal {
  override readonly kind = 'portproxy';
  readonly #store: RuleStore;
  protected override readonly proxyAddress: string;
  #conflicts: readonly ProxyRule[] = [];
  #isFirst = true;
  #closed: Promise<void> | undefined;

  constructor({ addresses, store, allocator, bindAddress }: PortProxyOptions) {
    super(addresses, allocator);
    this.#store = store;
    this.proxyAddress = { '0.0.0.0': '127.0.0.1', '::': '::1' }[bindAddress] ?? bindAddress;
  }

  override problems(): PortalProblem[] {
    const [first] = this.#conflicts;
    if (first === undefined) return super.problems();
    const { servicePort, key, target } = first;
    const [, address, port] = key.split(' ');
    const listen = portalText({ address, port: Number(port), protocol: 'TCP' });
    const message =
      `${servicePort} cannot have ${listen}: a portproxy rule of another program redirects it ` +
      `(netsh interface portproxy show all; ${target.replace(' ', ':')})`;
    const code = 'KPNG_PORTAL_CONFLICT';
    const count = this.#conflicts.length;
    return [...super.problems(), { servicePort, code, message, count }];
  }

  /** Rejects with KPNG_PORTAL_* if rules cannot be written; the addresses are added anyway. */
  override async commit(bound: Iterable<BoundPorts>): Promise<void> {
    this.settle(bound);
    await this.#write([...this.names].flatMap((name) => this.#rulesOf(name)));
    await super.commit([]);
  }

  override close(removes = false): Promise<void> {
    this.#closed ??= this.#close(removes);
    return this.#closed;
  }

  protected override listenersOf(
    wanted: ServicePortPortals,
    held: readonly PortalSpec[],
  ): Listener[] {
    const own = held.filter((claim) => !isRedirected(claim));
    const address = this.proxyAddress;
    const redirected = held.filter(isRedirected).map(({ traffic }) => ({ address, traffic }));
    return [...super.listenersOf(wanted, own), ...redirected];
  }

  async #close(removes: boolean): Promise<void> {
    try {
      if (removes) await this.#write([]);
    } finally {
      await super.close(removes);
    }
  }

  async #write(rules: readonly ProxyRule[]): Promise<void> {
    const begin = performance.now();
    try {
      const { added, removed, conflicts } = await this.#store.write(rules);
      this.#conflicts = conflicts;
      const reason = this.#isFirst ? 'start' : 'change';
      this.#isFirst = false;
      if (added + removed === 0 && reason === 'change') return;
      const durationMs = performance.now() - begin;
      portalWritten.publish({ portal: this.kind, reason, added, removed, durationMs });
    } catch (error) {
      if (error instanceof KpngError) portalFailed.publish({ portal: this.kind, error });
      throw error;
    }
  }

  /** A listener that could not be opened gets no rule: its target would be closed. */
  #rulesOf(servicePort: string): ProxyRule[] {
    const to = this.proxyAddress;
    const portOf = this.portsOf(servicePort);
    return this.held(servicePort).flatMap((claim) => {
      const { address = '', port, traffic } = claim;
      const toPort = isRedirected(claim) ? portOf({ address: to, traffic }) : undefined;
      if (toPort === undefined) return [];
      const from = isWildcard(address) ? '*' : address;
      const key = `v${familyOf(address)}tov${familyOf(to)} ${from} ${port}`;
      return [{ key, target: `${to} ${toPort}`, servicePort }];
    });
  }
}

function isRedirected({ protocol, sourceRanges }: PortalSpec): boolean {
  return protocol === 'TCP' && sourceRanges.length === 0;
}
