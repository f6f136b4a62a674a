/** Removes chains left behind by a portal that has ended, or by kube-proxy. */
import { KpngError } from '../../errors.ts';
import type { Family } from '../../util/family.ts';
import type { Exec } from '../exec.ts';
import { clearFlows, type FlowAddress } from '../rules/udp-flows.ts';
import { FAMILIES } from '../rules/backend.ts';
import { checkPrefix, DEFAULT_PREFIX } from './chains.ts';
import { findTools, type Flavor, Kernel } from './tools.ts';
import { areOurs, isNothing, ownersOf, type Found } from './listing.ts';
import { renderRemoval } from './script.ts';

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
