import { randomBytes } from 'node:crypto';
import { KpngError } from '../../errors.ts';
import { FAMILIES, type Family } from '../../util/family.ts';
import { IPTABLES_AUDIT, MAX_COMPARISONS } from '../bounds.ts';
import { type Exec, isAccepted, problemOf, type ToolError } from '../exec.ts';
import {
  type Backend,
  type Comparison,
  type ElementChange,
  Elements,
  type RuleCanary,
  type RuleConfig,
} from '../rules/backend.ts';
import { clearFlows, flowKey } from '../rules/udp-flows.ts';
import { findTools, type Flavor, Kernel, type Tools } from './tools.ts';
import { iptablesCanary, rulesOf } from './translate.ts';
import {
  damageIn,
  DEFAULT_PREFIX,
  type Found,
  ownersOf,
  renderDelta,
  renderFull,
  renderRemoval,
  renderTrial,
  type RuleContext,
} from './script.ts';

/**
 * The chains of kube-proxy's userspace mode, in IPv4 and IPv6.
 *
 * The cost per packet grows with the number of portals. A change is a few lines for one `iptables-restore` per
 * affected family.
 */
export class IptablesBackend implements Backend {
  readonly kind = 'iptables';
  readonly what: string;
  readonly apart = 'give each a --portal-chain-prefix of its own';
  readonly comparisons: readonly Comparison[] = [
    { policy: IPTABLES_AUDIT, difference: this.difference.bind(this) },
  ];
  readonly elements = rulesOf;
  readonly #exec: Exec;
  readonly #findTools: () => Promise<Tools>;
  readonly #prefix: string;
  #kernel: Kernel | undefined;

  /** `tools` is called again as long as it rejects. `prefix`: see `checkPrefix`. */
  constructor(exec: Exec, tools: () => Promise<Tools>, prefix = DEFAULT_PREFIX) {
    this.what = `the iptables chains ${prefix}-*`;
    this.#exec = exec;
    this.#findTools = tools;
    this.#prefix = prefix;
  }

  canary(config: RuleConfig): RuleCanary {
    return iptablesCanary(config, this.#prefix);
  }

  async replace(
    config: RuleConfig,
    elements: Elements,
    onlyOwn: boolean,
  ): Promise<string | undefined> {
    const found = await this.#find(config);
    const [other] = [...found.values()].flatMap((each) => this.#otherOwner(each, config) ?? []);
    if (onlyOwn && other !== undefined) return other;
    await this.#restore(config, 'writing', (context) => {
      const own = found.get(context.family);
      return own && renderFull(context, elements, own);
    });
    return undefined;
  }

  async change(
    config: RuleConfig,
    changes: readonly ElementChange[],
    elements: Elements,
  ): Promise<string | undefined> {
    const removals = changes.filter(({ before }) => before !== undefined);
    if (removals.length > MAX_COMPARISONS) {
      // iptables compares a rule to remove with those of its whole chain.
      const sets = elements.bySet();
      const compared = removals.reduce((sum, { set }) => sum + (sets.get(set)?.length ?? 0), 0);
      if (compared > MAX_COMPARISONS * elements.size) return this.replace(config, elements, true);
    }
    await this.#restore(config, 'changing', (context) => renderDelta(context, changes));
    return undefined;
  }

  accepts(config: RuleConfig, elements: Elements): Promise<boolean> {
    return isAccepted(
      this.#restore(config, 'checking', (context) => renderTrial(context, elements)),
    );
  }

  async difference(config: RuleConfig, elements: Elements): Promise<string | undefined> {
    for (const [family, found] of await this.#find(config)) {
      const [what] = damageIn({ prefix: this.#prefix, family, config }, elements, found);
      if (what !== undefined) return `IPv${family} ${what} than were written`;
    }
    return undefined;
  }

  async remove(config: RuleConfig): Promise<void> {
    const all = await this.#find(config);
    await this.#restore(config, 'removing', ({ family }) => {
      const found = all.get(family);
      return found && !this.#otherOwner(found, config) ? renderRemoval(found) : '';
    });
  }

  /** Another process of ours that has written the chains, unless this one has as well. */
  #otherOwner(found: Found, { owner }: RuleConfig): string | undefined {
    const owners = ownersOf(this.#prefix, found);
    return owners.includes(owner) ? undefined : owners[0];
  }

  async #find(config: RuleConfig): Promise<ReadonlyMap<Family, Found>> {
    return new Map(
      await this.#inFamilies(config, async ({ family }, kernel) => {
        return [family, await kernel.find(family, this.#prefix)] as const;
      }),
    );
  }

  /** Runs a script in each family that has one. */
  async #restore(
    config: RuleConfig,
    doing: string,
    script: (context: RuleContext) => string | undefined,
  ): Promise<void> {
    await this.#inFamilies(config, async (context, kernel) => {
      const text = script(context) ?? '';
      if (text !== '') await kernel.restore(context.family, text, `${doing} ${this.what}`);
    });
  }

  /** Runs for both families at once and awaits both. Rejects with the first failure. */
  async #inFamilies<T>(
    config: RuleConfig,
    action: (context: RuleContext, kernel: Kernel) => Promise<T>,
  ): Promise<T[]> {
    this.#kernel ??= new Kernel(this.#exec, await this.#findTools());
    const kernel = this.#kernel;
    const runs = config.families.map(async (family) =>
      action({ prefix: this.#prefix, family, config }, kernel),
    );
    await Promise.allSettled(runs);
    return Promise.all(runs);
  }
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

/** Rules with each match and target: the jumps to our chains have the others. */
function trial(family: Family): string {
  const target = family === 6 ? '2001:db8::1' : '192.0.2.1';
  const portal = { kind: 'nodePort', traffic: 'external', address: undefined, port: 1 } as const;
  const redirects = (['TCP', 'UDP'] as const).map((protocol) => ({
    family,
    portal: { ...portal, protocol, sourceRanges: [] },
    proxyPort: protocol === 'TCP' ? 1 : undefined,
  }));
  const elements = new Elements();
  elements.set('check', rulesOf('check', redirects, [{ family, protocol: 'TCP', port: 1 }]));
  const config = {
    owner: 'check',
    families: [family],
    targets: { 4: target, 6: target },
    nodePortNetworks: { 4: [target], 6: [target] },
  };
  // An unused prefix: neither existing chains nor another process that checks at the same time affect it.
  const prefix = `check${randomBytes(4).toString('hex')}`;
  return renderTrial({ prefix, family, config }, elements);
}

interface LeftOverOptions {
  readonly prefix: string;
  /** Whether to also remove the chains of kube-proxy's userspace mode, whose names begin with KUBE. */
  readonly kubeProxy: boolean;
  readonly local: ReadonlySet<string>;
  /** The flavours to clean up. Default: both. */
  readonly flavors?: readonly Flavor[];
  /** Whether to keep the chains of one of these owners. Default: none are kept. */
  readonly stays?: (owners: readonly string[]) => Promise<boolean>;
}

/**
 * Removes our chains in both flavours and families, and the UDP flows that they redirected. kube-proxy's chains have
 * the same names, but no owner chain; they stay unless requested.
 *
 * Succeeds if there is nothing to remove. `kubeProxyStays`: there are chains of kube-proxy that were not to be removed.
 * Rejects with KPNG_PORTAL_*; KPNG_PORTAL_TOOL_MISSING if no flavour is installed.
 */
export async function cleanUpIptables(exec: Exec, options: LeftOverOptions) {
  const { prefix, kubeProxy, local, flavors = ['nft', 'legacy'], stays } = options;
  const flows = new Map<string, string>();
  let removed = false;
  let kubeProxyStays = false;
  for (const kernel of await installed(exec, flavors)) {
    for (const family of FAMILIES) {
      for (const name of new Set([prefix, DEFAULT_PREFIX])) {
        // A family may have no program.
        const found = await unlessMissing(kernel.find(family, name));
        const script = found instanceof Error ? '' : renderRemoval(found);
        if (found instanceof Error || script === '') continue;
        const owners = ownersOf(name, found);
        const ours = owners.length > 0;
        // Chains owned by another proxy of ours are not left over from kube-proxy.
        if (ours ? name !== prefix : !kubeProxy) {
          kubeProxyStays ||= !ours;
          continue;
        }
        if (ours && (await stays?.(owners)) === true) continue;
        await kernel.restore(family, script, `removing the chains ${name}-*`);
        removed = true;
        for (const key of udpFlows(family, found)) flows.set(key, '');
      }
    }
  }
  const flowsStay = await clearFlows(exec, flows, local);
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

/** Each of them is in one of these chains, too. */
const REDIRECT = /^\S+-(?:PORTALS|NODEPORT)-HOST .*-p udp .*--dport (\d+) .*-j (?:DNAT|REDIRECT) /;

function udpFlows(family: Family, { nat }: Found): string[] {
  return nat.rules.flatMap((line) => {
    const [, port] = REDIRECT.exec(line) ?? [];
    const [, address] = / -d ([0-9a-f.:]+)\//.exec(line) ?? [];
    return port === undefined ? [] : [flowKey(family, address, port)];
  });
}
