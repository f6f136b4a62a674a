import { randomBytes } from 'node:crypto';
import { KpngError } from '../../errors.ts';
import { FAMILIES, type Family } from '../../util/family.ts';
import { IPTABLES_AUDIT, MAX_COMPARISONS } from '../bounds.ts';
import { type Exec, isAccepted, problemOf, type ToolError } from '../exec.ts';
import {
  type Backend,
  type Comparison,
  Elements,
  type RuleConfig,
  trialConfig,
} from '../rules/backend.ts';
import { clearFlows, flowKey } from '../rules/udp-flows.ts';
import { findTools, type Flavor, restoreRules, saveRules, type Tools } from './tools.ts';
import { iptablesCanary, rulesOf } from './translate.ts';
import {
  damageIn,
  DEFAULT_PREFIX,
  findRules,
  type Found,
  ownersOf,
  renderDelta,
  renderFull,
  renderRemoval,
  renderTrial,
  type RuleContext,
} from './script.ts';

/**
 * The chains of kube-proxy's userspace mode, in IPv4 and IPv6. `tools` is called for each transaction. `prefix`: see
 * `checkPrefix`.
 *
 * The cost per packet grows with the number of portals. A change is a few lines for one `iptables-restore` per
 * affected family.
 */
export function iptablesBackend(
  exec: Exec,
  tools: () => Promise<Tools>,
  prefix = DEFAULT_PREFIX,
): Backend {
  const what = `the iptables chains ${prefix}-*`;

  /** Runs for both families at once and awaits both. Rejects with the first failure. */
  const inFamilies = async <T>(
    config: RuleConfig,
    action: (context: RuleContext, installed: Tools) => Promise<T>,
  ): Promise<T[]> => {
    const installed = await tools();
    const runs = config.families.map(async (family) =>
      action({ prefix, family, config }, installed),
    );
    await Promise.allSettled(runs);
    return Promise.all(runs);
  };

  /** Our chains in each family. */
  const find = async (config: RuleConfig): Promise<ReadonlyMap<Family, Found>> =>
    new Map(
      await inFamilies(config, async ({ family }, installed) => {
        return [family, findRules(prefix, await saveRules(exec, installed, family))] as const;
      }),
    );

  /** Runs a script in each family that has one. */
  const restore = async (
    config: RuleConfig,
    doing: string,
    script: (context: RuleContext) => string | undefined,
  ): Promise<void> => {
    await inFamilies(config, async (context, installed) => {
      const text = script(context) ?? '';
      if (text === '') return;
      await restoreRules(exec, installed, context.family, text, `${doing} ${what}`);
    });
  };

  /** Another process of ours that has written the chains, unless this one has as well. */
  const otherOwner = (chains: Found, { owner }: RuleConfig): string | undefined => {
    const owners = ownersOf(prefix, chains);
    return owners.includes(owner) ? undefined : owners[0];
  };

  const replace: Backend['replace'] = async (config, elements, onlyOwn) => {
    const all = await find(config);
    const [other] = [...all.values()].flatMap((chains) => otherOwner(chains, config) ?? []);
    if (onlyOwn && other !== undefined) return other;
    await restore(config, 'writing', (context) => {
      const chains = all.get(context.family);
      return chains && renderFull(context, elements, chains);
    });
    return undefined;
  };

  const difference: Comparison['difference'] = async (config, elements) => {
    for (const [family, chains] of await find(config)) {
      const [damage] = damageIn({ prefix, family, config }, elements, chains);
      if (damage !== undefined) return `IPv${family} ${damage} than were written`;
    }
    return undefined;
  };

  return {
    kind: 'iptables',
    what,
    apart: 'give each a --portal-chain-prefix of its own',
    comparisons: [{ policy: IPTABLES_AUDIT, difference }],
    canary: (config) => iptablesCanary(config, prefix),
    elements: rulesOf,
    replace,

    async change(config, changes, elements) {
      const removals = changes.filter(({ before }) => before !== undefined);
      if (removals.length > MAX_COMPARISONS) {
        // iptables compares a rule to remove with those of its whole chain.
        const sets = elements.bySet();
        const compared = removals.reduce((sum, { set }) => sum + (sets.get(set)?.length ?? 0), 0);
        if (compared > MAX_COMPARISONS * elements.size) return replace(config, elements, true);
      }
      await restore(config, 'changing', (context) => renderDelta(context, changes));
      return undefined;
    },

    accepts: (config, elements) =>
      isAccepted(restore(config, 'checking', (context) => renderTrial(context, elements))),

    async remove(config) {
      const all = await find(config);
      await restore(config, 'removing', ({ family }) => {
        const chains = all.get(family);
        return chains && !otherOwner(chains, config) ? renderRemoval(chains) : undefined;
      });
    },
  };
}

/**
 * Lets the kernel accept rules of every kind in a chain without packets, and removes it, in each family. Resolves with
 * the families that iptables can write rules for, and why not the others.
 */
export async function tryIptables(exec: Exec, tools: Tools, families: readonly Family[]) {
  const problems = new Map<Family, ToolError>();
  const doing = 'checking whether iptables can be used';
  // An unused prefix: neither existing chains nor another process that checks at the same time affect it.
  const prefix = `check${randomBytes(4).toString('hex')}`;
  const nodePort = { kind: 'nodePort', address: undefined, port: 1, traffic: 'external' } as const;
  const portal = { ...nodePort, sourceRanges: [] };
  const attempts = families.map(async (family) => {
    // Each match and target: the jumps to our chains have the others.
    const redirects = [
      { family, portal: { ...portal, protocol: 'TCP' }, proxyPort: 1 },
      { family, portal: { ...portal, protocol: 'UDP' }, proxyPort: undefined },
    ] as const;
    const elements = new Elements();
    elements.set('check', rulesOf('check', redirects, [{ family, protocol: 'TCP', port: 1 }]));
    const text = renderTrial({ prefix, family, config: trialConfig([family]) }, elements);
    const problem = await problemOf(restoreRules(exec, tools, family, text, doing));
    if (problem !== undefined) problems.set(family, problem);
  });
  await Promise.all(attempts);
  return { families: families.filter((family) => !problems.has(family)), problems };
}

interface LeftOverOptions {
  readonly prefix: string;
  /** Whether to also remove the chains of kube-proxy's userspace mode, whose names begin with KUBE. */
  readonly kubeProxy: boolean;
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
  const { prefix, kubeProxy, flavors = ['nft', 'legacy'], stays } = options;
  const flows = new Map<string, string>();
  let removed = false;
  let kubeProxyStays = false;
  let missing: KpngError | undefined;
  /** A flavour or a family may have no program. */
  const noteMissing = (error: unknown): void => {
    if (!(error instanceof KpngError && error.code === 'KPNG_PORTAL_TOOL_MISSING')) throw error;
    missing = error;
  };
  const all = await Promise.all(flavors.map((each) => findTools(exec, each).catch(noteMissing)));
  const installed = all.filter((tools) => tools !== undefined);
  if (installed.length === 0 && missing !== undefined) throw missing;
  // Each has separate rules, possibly of an earlier version.
  for (const tools of installed) {
    for (const family of FAMILIES) {
      for (const name of new Set([prefix, DEFAULT_PREFIX])) {
        const listing = await saveRules(exec, tools, family).catch(noteMissing);
        const found = findRules(name, listing ?? '');
        const script = renderRemoval(found);
        if (script === '') continue;
        const owners = ownersOf(name, found);
        const ours = owners.length > 0;
        // Chains owned by another proxy of ours are not left over from kube-proxy.
        if (ours ? name !== prefix : !kubeProxy) {
          kubeProxyStays ||= !ours;
          continue;
        }
        if (ours && (await stays?.(owners)) === true) continue;
        await restoreRules(exec, tools, family, script, `removing the chains ${name}-*`);
        removed = true;
        for (const key of udpFlows(family, found)) flows.set(key, '');
      }
    }
  }
  const flowsStay = await clearFlows(exec, flows);
  return { removed, kubeProxyStays, flowsStay };
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
