import { randomBytes } from 'node:crypto';
import { KpngError } from '../../errors.ts';
import type { Family } from '../../util/family.ts';
import { MAX_COMPARISONS } from '../bounds.ts';
import { type Exec, isAccepted, problemOf, type ToolError } from '../exec.ts';
import {
  type Backend,
  type ElementChange,
  Elements,
  FAMILIES,
  type RuleConfig,
} from '../rules/backend.ts';
import { clearFlows, type FlowAddress } from '../rules/udp-flows.ts';
import { checkPrefix, DEFAULT_PREFIX, readSlotName, type RuleContext, TABLES } from './chains.ts';
import { findTools, type Flavor, Kernel, type Tools } from './tools.ts';
import type { Redirect } from '../redirect-plan.ts';
import { rulesOf } from './translate.ts';
import {
  areOurs,
  damagedParts,
  type Found,
  isNothing,
  ownersOf,
  readListing,
  renderDelta,
  renderFull,
  renderListing,
  renderRemoval,
  renderTrial,
} from './script.ts';

export class IptablesBackend implements Backend {
  readonly what: string;
  readonly #exec: Exec;
  readonly #findTools: () => Promise<Tools>;
  readonly #prefix: string;
  #tools: Tools | undefined;
  /** Of the last write, if its outcome is known; undefined during a write. */
  #written: RuleConfig | undefined;
  /** Whether only jumps are known to be missing, so that the next `replace` does not list chains, which is slow. */
  #lacksJumps = false;

  /** `tools` is called again as long as it rejects. Throws KPNG_USAGE for an invalid prefix. */
  constructor(exec: Exec, tools: () => Promise<Tools>, prefix: string) {
    checkPrefix(prefix);
    this.what = `the iptables chains ${prefix}-*`;
    this.#exec = exec;
    this.#findTools = tools;
    this.#prefix = prefix;
  }

  /** Lists the tables to find owners and jumps. After damage it only compares counts, and rewrites what differs. */
  async replace(
    config: RuleConfig,
    elements: Elements,
    onlyOwn: boolean,
  ): Promise<string | undefined> {
    const damaged = onlyOwn && this.#written === config;
    const hasChains = !this.#lacksJumps;
    this.#begin();
    const kernel = await this.#kernel();
    const found = await this.#inFamilies(config, async (context) => {
      // If chains are missing, the full listing finds the damage.
      const seen = damaged
        ? await inspect(kernel, context, elements, hasChains).catch(() => undefined)
        : undefined;
      return seen ?? (await kernel.find(context.family, this.#prefix, true));
    });
    const other = [...found.values()]
      .map((each) => this.#otherOwner(each, config))
      .find((owner) => owner !== undefined);
    if (onlyOwn && other !== undefined) return other;
    const render = (onlyDamaged: boolean) =>
      new Map(
        [...found].map(([family, each]) => {
          const context = this.#context(config, family);
          return [family, renderFull(context, elements, each, onlyDamaged)];
        }),
      );
    let scripts = render(damaged);
    // If no rule is missing, the contents differ.
    if (![...scripts.values()].some(Boolean)) scripts = render(false);
    await this.#inFamilies(config, async ({ family }) => {
      const script = scripts.get(family) ?? '';
      if (script !== '') await kernel.restore(family, script, `writing ${this.what}`);
    });
    this.#written = config;
    return undefined;
  }

  async change(
    config: RuleConfig,
    changes: readonly ElementChange[],
    elements: Elements,
  ): Promise<string | undefined> {
    const before = this.#written;
    this.#begin();
    if (comparisons(changes, elements) > MAX_COMPARISONS * elements.size()) {
      return this.replace(config, elements, true);
    }
    const byFamily = Map.groupBy(changes, ({ set }) => readSlotName(set).family);
    const kernel = await this.#kernel();
    await this.#inFamilies(config, async (context) => {
      const list = byFamily.get(context.family);
      if (list === undefined) return;
      await kernel.restore(context.family, renderDelta(context, list), `changing ${this.what}`);
    });
    this.#written = before;
    return undefined;
  }

  async accepts(config: RuleConfig, elements: Elements): Promise<boolean> {
    const kernel = await this.#kernel();
    return isAccepted(
      this.#inFamilies(config, (context) =>
        kernel.restore(context.family, renderTrial(context, elements), `checking ${this.what}`),
      ),
    );
  }

  async difference(config: RuleConfig, elements: Elements): Promise<string | undefined> {
    const kernel = await this.#kernel();
    const differences = await this.#inFamilies(config, async (context) => {
      const name = `IPv${context.family}`;
      const found = await inspect(kernel, context, elements).catch(() => undefined);
      if (found === undefined) return [`${name} chains are missing`];
      return TABLES.flatMap((table) => {
        const { chains, jumps } = damagedParts(context, elements, found, table);
        return [...chains, ...(jumps ? [`jumps in ${table}`] : [])].map(
          (part) => `${name} ${part} has other rules than were written`,
        );
      });
    });
    return [...differences.values()].flat()[0];
  }

  async remove(config: RuleConfig): Promise<void> {
    const kernel = await this.#kernel();
    await this.#inFamilies(config, async ({ family }) => {
      const found = await kernel.find(family, this.#prefix, false);
      if (isNothing(found) || this.#otherOwner(found, config) !== undefined) return;
      await kernel.restore(family, renderRemoval(found), `removing ${this.what}`);
    });
  }

  async jumpDifference(config: RuleConfig, elements: Elements): Promise<string | undefined> {
    const kernel = await this.#kernel();
    const missing = await this.#inFamilies(config, async (context) => {
      const found = await inspect(kernel, context, elements, false);
      return TABLES.some((table) => damagedParts(context, elements, found, table).jumps);
    });
    this.#lacksJumps = [...missing.values()].includes(true);
    return this.#lacksJumps ? 'jumps are missing' : undefined;
  }

  /** Another process of ours that has written the chains, unless this one has as well. */
  #otherOwner(found: Found, { owner }: RuleConfig): string | undefined {
    const owners = ownersOf(this.#prefix, found);
    return owners.includes(owner) ? undefined : owners[0];
  }

  #begin(): void {
    this.#written = undefined;
    this.#lacksJumps = false;
  }

  async #kernel(): Promise<Kernel> {
    this.#tools ??= await this.#findTools();
    return new Kernel(this.#exec, this.#tools);
  }

  #context(config: RuleConfig, family: Family): RuleContext {
    return { prefix: this.#prefix, family, config };
  }

  /** Runs for both families at once and awaits both. Rejects with the first failure. */
  async #inFamilies<T>(
    config: RuleConfig,
    action: (context: RuleContext) => Promise<T>,
  ): Promise<Map<Family, T>> {
    const outcomes = await Promise.allSettled(
      config.families.map(async (family) => {
        return [family, await action(this.#context(config, family))] as const;
      }),
    );
    return new Map(
      outcomes.map((outcome) => {
        if (outcome.status === 'rejected') throw outcome.reason;
        return outcome.value;
      }),
    );
  }
}

/** A quick check of the last write, with `hasChains` also of our chains. Rejects if one of these is missing. */
async function inspect(
  kernel: Kernel,
  context: RuleContext,
  elements: Elements,
  hasChains = true,
): Promise<Found> {
  const scripts = TABLES.map((table) =>
    renderListing(context, table, hasChains ? elements : undefined),
  );
  // Jumps are looked for often: by one process.
  const printed = await Promise.all(
    (hasChains ? scripts : [scripts.join('')]).map((script) =>
      kernel.restore(context.family, script, 'looking at chains'),
    ),
  );
  return readListing(context, elements, printed.join(''), hasChains);
}

/** Number of rules that iptables compares to find those to remove. */
function comparisons(changes: readonly ElementChange[], elements: Elements): number {
  return changes.reduce(
    (sum, { set, before }) => sum + (before === undefined ? 0 : elements.size(set)),
    0,
  );
}

/** The families that iptables can write rules for, and why not the others. */
export interface Usable {
  readonly families: readonly Family[];
  readonly problems: ReadonlyMap<Family, ToolError>;
}

/** Lets the kernel accept rules of every kind in a chain without packets, and removes it, in each family. */
export async function tryIptables(
  exec: Exec,
  tools: Tools,
  families: readonly Family[],
): Promise<Usable> {
  const kernel = new Kernel(exec, tools);
  const problems = new Map<Family, ToolError>();
  const doing = 'checking whether iptables can be used';
  const attempts = families.map(async (family) => {
    const problem = await problemOf(kernel.restore(family, trial(family), doing));
    if (problem !== undefined) problems.set(family, problem);
  });
  await Promise.all(attempts);
  return { families: families.filter((family) => !problems.has(family)), problems };
}

function trial(family: Family): string {
  const elements = new Elements();
  elements.set('check', rulesOf('check', examples(family), [{ family, protocol: 'TCP', port: 1 }]));
  const config = {
    owner: 'check',
    families: [family],
    targets: { 4: '192.0.2.1', 6: '2001:db8::1' },
    nodePortNetworks: { 4: ['192.0.2.0/24'], 6: ['2001:db8::/32'] },
  };
  // An unused prefix: neither existing chains nor another process that checks at the same time affect it.
  const prefix = `check${randomBytes(4).toString('hex')}`;
  return renderTrial({ prefix, family, config }, elements);
}

/** One of each kind: redirected and rejected, for all clients and for some, service address and node port. */
function examples(family: Family): Redirect[] {
  const [own, range] =
    family === 6 ? ['2001:db8::1', '2001:db8::/32'] : ['192.0.2.1', '192.0.2.0/24'];
  return [undefined, own].flatMap((address) =>
    [1, undefined].flatMap((proxyPort) =>
      (['TCP', 'UDP'] as const).map((protocol): Redirect => {
        const port = protocol === 'TCP' ? 1 : 2;
        const common = { protocol, address, port, traffic: 'external' } as const;
        const portal =
          address === undefined
            ? ({ ...common, kind: 'nodePort', sourceRanges: [] } as const)
            : ({ ...common, kind: 'loadBalancerIP', sourceRanges: [range] } as const);
        return { family, portal, proxyPort };
      }),
    ),
  );
}

export interface LeftOverOptions {
  readonly prefix: string;
  /** Whether to also remove the chains of kube-proxy's userspace mode, whose names begin with KUBE. */
  readonly kubeProxy: boolean;
  readonly local: ReadonlySet<string>;
  /** The flavours to clean up. Default: both. */
  readonly flavors?: readonly Flavor[];
  /** Whether to keep the chains of one of these owners. Default: none are kept. */
  readonly stays?: (owners: readonly string[]) => Promise<boolean>;
}

export interface LeftOver {
  readonly removed: boolean;
  /** Whether chains of kube-proxy exist that were not to be removed. */
  readonly kubeProxyStays: boolean;
  readonly flowsStay: KpngError | undefined;
}

/**
 * Removes our chains in both flavours and families, and the UDP flows that they redirected. kube-proxy's chains have
 * the same names, but no owner chain; they stay unless requested.
 *
 * Succeeds if there is nothing to remove. Rejects with KPNG_PORTAL_*; KPNG_PORTAL_TOOL_MISSING if no flavour is
 * installed.
 */
export async function cleanUpIptables(exec: Exec, options: LeftOverOptions): Promise<LeftOver> {
  const { prefix, kubeProxy, local, flavors = ['nft', 'legacy'], stays } = options;
  checkPrefix(prefix);
  const addresses = new Map<string, FlowAddress>();
  let removed = false;
  let kubeProxyStays = false;
  for (const kernel of await installed(exec, flavors)) {
    for (const family of FAMILIES) {
      for (const name of new Set([prefix, DEFAULT_PREFIX])) {
        // A family may have no program.
        const found = await unlessMissing(kernel.find(family, name, false));
        if (found instanceof Error || isNothing(found)) continue;
        const ours = areOurs(name, found);
        // Chains owned by another proxy of ours are not left over from kube-proxy.
        if (ours ? name !== prefix : !kubeProxy) {
          kubeProxyStays ||= !ours;
          continue;
        }
        if (ours && (await stays?.(ownersOf(name, found))) === true) continue;
        await kernel.restore(family, renderRemoval(found), `removing the chains ${name}-*`);
        removed = true;
        for (const place of udpAddresses(name, family, found)) {
          addresses.set(`${family} ${place.address ?? ''} ${place.port}`, place);
        }
      }
    }
  }
  const flowsStay = await clearFlows(exec, [...addresses.values()], local);
  return { removed, kubeProxyStays, flowsStay };
}

/** The installed flavours. Each has separate rules, possibly of an earlier version. */
async function installed(exec: Exec, flavors: readonly Flavor[]): Promise<Kernel[]> {
  const all = await Promise.all(flavors.map((each) => unlessMissing(findTools(exec, each))));
  const missing = all.findLast((tools) => tools instanceof Error);
  const kernels = all.flatMap((tools) => (tools instanceof Error ? [] : [new Kernel(exec, tools)]));
  if (kernels.length === 0 && missing !== undefined) throw missing;
  return kernels;
}

/** Resolves with the error if a program is missing. */
function unlessMissing<T>(action: Promise<T>): Promise<T | KpngError> {
  return action.catch((error: unknown) => {
    if (error instanceof KpngError && error.code === 'KPNG_PORTAL_TOOL_MISSING') return error;
    throw error;
  });
}

const REDIRECT = /^(\S+) (.*-p udp .*--dport (\d+) .*-j (?:DNAT|REDIRECT) .*)$/;

function udpAddresses(prefix: string, family: Family, { nat }: Found): FlowAddress[] {
  return nat.rules.flatMap((line): FlowAddress[] => {
    const [, chain = '', match = '', port] = REDIRECT.exec(line) ?? [];
    const [, address] = /(?:^| )-d ([0-9a-f.:]+)\//.exec(match) ?? [];
    const isPortal = address !== undefined || chain.startsWith(`${prefix}-NODEPORT-`);
    if (port === undefined || !isPortal) return [];
    return [{ family, address, port: Number(port), proxyPort: undefined }];
  });
}
