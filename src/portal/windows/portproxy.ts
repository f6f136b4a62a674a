/** The portal with `netsh interface portproxy`: its rules, and the netsh commands that change them. */
import type { ListenSpec } from '../../proxysocket/spec.ts';
import { KpngError } from '../../errors.ts';
import { familyOf, isWildcard } from '../../util/family.ts';
import { type AddressClaim, AddressPortal, type AddressPortalOptions } from '../address.ts';
import { portalFailed, portalWritten } from '../events.ts';
import { type Exec, ExecError } from '../exec.ts';
import type { Listener } from '../listen-plan.ts';
import type { PortAllocator } from '../proxy-ports.ts';
import {
  type BoundPorts,
  type PortalProblem,
  portalText,
  type ServicePortPortals,
} from '../portal.ts';
import type { AddressLedger } from './ledger.ts';
import { runAll, runNetsh } from './netsh.ts';

export type RuleType = 'v4tov4' | 'v4tov6' | 'v6tov4' | 'v6tov6';

/** Redirects TCP connections from an address and port to another. */
export interface ProxyRule {
  readonly type: RuleType;
  /** IP literal, or `*`: every address of the family. */
  readonly address: string;
  readonly port: number;
  readonly toAddress: string;
  readonly toPort: number;
  /** The service port that it is for; absent: it was listed. */
  readonly servicePort?: string;
}

/** The key of a rule, unique in Windows. */
export function ruleKey({
  type,
  address,
  port,
}: Pick<ProxyRule, 'type' | 'address' | 'port'>): string {
  return `${type} ${address} ${port}`;
}

/** The rule that redirects a listener's address to a proxy port. */
export function ruleFor(
  { address, port }: { readonly address: string; readonly port: number },
  toAddress: string,
  toPort: number,
): ProxyRule {
  const type = `v${familyOf(address)}tov${familyOf(toAddress)}` as const;
  return { type, address: isWildcard(address) ? '*' : address, port, toAddress, toPort };
}

/** Adds a rule, or changes its target; without a target, deletes it. */
function ruleArgs(key: string, rule?: ProxyRule): string[] {
  const [type = '', address, port] = key.split(' ');
  const to = rule && [`connectaddress=${rule.toAddress}`, `connectport=${rule.toPort}`];
  const args = [type, `listenaddress=${address}`, `listenport=${port}`, ...(to ?? [])];
  return ['interface', 'portproxy', rule === undefined ? 'delete' : 'add', ...args, 'protocol=tcp'];
}

/** Parses a listing in any language: four columns, two of which are ports. */
export function readRules(text: string, type: RuleType): ProxyRule[] {
  return text.split(/\r?\n/).flatMap((line) => {
    const [address = '', port = '', toAddress = '', toPort = '', more] = line.trim().split(/\s+/);
    const isRule = more === undefined && /^\d+$/.test(port) && /^\d+$/.test(toPort);
    return isRule ? [{ type, address, port: Number(port), toAddress, toPort: Number(toPort) }] : [];
  });
}

const TYPES: readonly RuleType[] = ['v4tov4', 'v4tov6', 'v6tov4', 'v6tov6'];

export interface RulesWritten {
  readonly added: number;
  readonly removed: number;
  /** Foreign rules at the same address and port: these stay, and ours is missing. */
  readonly conflicts: readonly ProxyRule[];
}

/** Our portproxy rules. They outlive boots, so a ledger records which are ours. Foreign rules are never touched. */
export class RuleStore {
  readonly #exec: Exec;
  readonly #ledger: AddressLedger;
  /** Our rules as last written; undefined: unknown. */
  #written: Map<string, ProxyRule> | undefined;
  /** Addresses and ports that have a foreign rule. */
  #foreign = new Set<string>();

  constructor(exec: Exec, ledger: AddressLedger) {
    this.#exec = exec;
    this.#ledger = ledger;
  }

  /** Replaces all our rules by `wanted`, in one run of netsh. Rejects with KPNG_PORTAL_*. */
  async write(wanted: readonly ProxyRule[]): Promise<RulesWritten> {
    const before = this.#written ?? (await this.#list());
    const conflicts = wanted.filter((rule) => this.#foreign.has(ruleKey(rule)));
    const after = new Map(
      wanted
        .filter((rule) => !this.#foreign.has(ruleKey(rule)))
        .map((rule) => [ruleKey(rule), rule]),
    );
    const add = [...after].filter(([key, { toAddress, toPort }]) => {
      const old = before.get(key);
      return old?.toAddress !== toAddress || old.toPort !== toPort;
    });
    const remove = [...before.keys()].filter((key) => !after.has(key));
    // Until it has finished, the state is unknown.
    this.#written = undefined;
    await this.#ledger.add(add.map(([key]) => key).filter((key) => !before.has(key)));
    await this.#run(new Map([...remove.map((key) => [key, undefined] as const), ...add]));
    await this.#ledger.remove(remove);
    this.#written = after;
    return { added: add.length, removed: remove.length, conflicts };
  }

  async #list(): Promise<Map<string, ProxyRule>> {
    await this.#ledger.load();
    const ours = new Map<string, ProxyRule>();
    this.#foreign = new Set();
    for (const type of TYPES) {
      const doing = `listing the portproxy rules ${type}`;
      const args = ['interface', 'portproxy', 'show', type];
      const printed = await runNetsh(this.#exec, args, doing);
      for (const rule of readRules(printed, type)) {
        const key = ruleKey(rule);
        if (this.#ledger.addresses.has(key)) ours.set(key, rule);
        else this.#foreign.add(key);
      }
    }
    await this.#ledger.keep(ours.keys());
    return ours;
  }

  /** Changes rules; those without a target are deleted. */
  async #run(rules: ReadonlyMap<string, ProxyRule | undefined>): Promise<void> {
    const commands = new Map(Array.from(rules, ([key, rule]) => [key, ruleArgs(key, rule)]));
    const textOf = (key = ''): string =>
      commands.get(key)?.slice(1).join(' ') ?? `changing ${rules.size} portproxy rules`;
    // netsh exits with 1 if there is nothing to remove.
    const isAbsent = (key: string, { code, cause }: KpngError): boolean => {
      const isExit = cause instanceof ExecError && cause.failure === 'exit';
      return isExit && code === 'KPNG_PORTAL_FAILED' && rules.get(key) === undefined;
    };
    const left = async () => commands.keys();
    const [error] = (await runAll(this.#exec, commands, textOf, left, isAbsent)).values();
    if (error !== undefined) throw error;
  }
}

export interface PortProxyOptions {
  /** Who has which address, and the interface that gets them. */
  readonly addresses: AddressPortalOptions;
  readonly store: RuleStore;
  readonly allocator: PortAllocator;
  /** IP literal of the proxy ports; `0.0.0.0` and `::` mean the loopback address. */
  readonly bindAddress: string;
  readonly removeOnClose: boolean;
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
  readonly #removeOnClose: boolean;
  #conflicts: readonly ProxyRule[] = [];
  #isFirst = true;
  #closed: Promise<void> | undefined;

  constructor({ addresses, store, allocator, bindAddress, removeOnClose }: PortProxyOptions) {
    super(addresses, allocator);
    this.#store = store;
    this.proxyAddress = { '0.0.0.0': '127.0.0.1', '::': '::1' }[bindAddress] ?? bindAddress;
    this.#removeOnClose = removeOnClose;
  }

  override problems(): PortalProblem[] {
    return [...super.problems(), ...this.#conflictProblems()];
  }

  /** Rejects with KPNG_PORTAL_* if rules cannot be written; the addresses are added anyway. */
  override async commit(bound: Iterable<BoundPorts>): Promise<void> {
    this.settle(bound);
    await this.#write([...this.names].flatMap((name) => this.#rulesOf(name)));
    await super.commit([]);
  }

  /** To be called once all listeners are closed. */
  override close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  protected override listenersOf(
    wanted: ServicePortPortals,
    held: readonly AddressClaim[],
  ): Listener[] {
    const own = held.filter((claim) => !isRedirected(claim));
    const redirected = held.filter(isRedirected).map((claim) => this.#listenerFor(claim));
    return [...super.listenersOf(wanted, own), ...redirected];
  }

  async #close(): Promise<void> {
    try {
      if (this.#removeOnClose) await this.#write([]);
    } finally {
      await super.close();
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

  #listenerFor({ traffic }: ListenSpec): Listener {
    return { address: this.proxyAddress, traffic };
  }

  /** A listener that could not be opened gets no rule: its target would be closed. */
  #rulesOf(name: string): ProxyRule[] {
    const portOf = this.portsOf(name);
    return this.held(name).flatMap((claim) => {
      const port = isRedirected(claim) ? portOf(this.#listenerFor(claim)) : undefined;
      return port === undefined
        ? []
        : [{ ...ruleFor(claim, this.proxyAddress, port), servicePort: name }];
    });
  }

  #conflictProblems(): PortalProblem[] {
    const [first] = this.#conflicts;
    if (first === undefined) return [];
    const { address, port, toAddress, toPort, servicePort = '' } = first;
    const listen = portalText({ address, port, protocol: 'TCP' });
    const message =
      `${servicePort} cannot have ${listen}: a portproxy rule of another program redirects it ` +
      `(netsh interface portproxy show all; ${toAddress}:${toPort})`;
    const code = 'KPNG_PORTAL_CONFLICT';
    return [{ servicePort, code, message, count: this.#conflicts.length }];
  }
}

function isRedirected({ protocol, sourceRanges }: AddressClaim): boolean {
  return protocol === 'TCP' && sourceRanges === undefined;
}
