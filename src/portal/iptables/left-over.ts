/** Takes away the chains that have been left behind: by a portal that has ended, or by kube-proxy. */
import { KpngError } from '../../errors.ts';
import type { Family } from '../../util/family.ts';
import type { Exec } from '../exec.ts';
import { forgetFlows, type FlowPlace } from '../flows.ts';
import { checkPrefix, DEFAULT_PREFIX } from './chains.ts';
import { areOurs, isNothing, ownersOf, type Found } from './listing.ts';
import { Kernel } from './kernel.ts';
import { renderRemoval } from './script.ts';
import { findTools, type Flavor, type Tools } from './tools.ts';

export interface LeftOverOptions {
  /** What the names of our chains begin with. */
  readonly prefix: string;
  /** Whether the chains of kube-proxy's userspace mode go as well, whose names begin with KUBE, too. */
  readonly kubeProxy: boolean;
  /** The addresses of the node. */
  readonly local: ReadonlySet<string>;
  /** The flavours to look at. Default: both. */
  readonly flavors?: readonly Flavor[];
  /** Whether chains stay that one of these processes has signed. Default: none do. */
  readonly stays?: (owners: readonly string[]) => Promise<boolean>;
}

/** What has become of the chains. */
export interface LeftOver {
  /** Whether there were chains that are not there any more. */
  readonly removed: boolean;
  /** Whether chains of kube-proxy are there that were not to be removed. */
  readonly kubeProxyStays: boolean;
  /** The UDP flows are left, for this reason. */
  readonly flowsStay: KpngError | undefined;
}

/**
 * Removes chains of ours in both flavours and both families, and the UDP flows that they have led to proxy
 * ports. Other rules stay as they are, and what kube-proxy has left stays unless it is asked for: its
 * chains have the same names as ours by default, but we sign ours.
 *
 * Fine when there is nothing. Rejects with KPNG_PORTAL_* when something cannot be removed, and with
 * KPNG_PORTAL_TOOL_MISSING when no flavour is installed.
 */
export async function cleanUpIptables(exec: Exec, options: LeftOverOptions): Promise<LeftOver> {
  const { prefix, kubeProxy, local, flavors = ['nft', 'legacy'], stays } = options;
  checkPrefix(prefix);
  const places = new Map<string, FlowPlace>();
  let removed = false;
  let kubeProxyStays = false;
  for (const tools of await installed(exec, flavors)) {
    const kernel = new Kernel(exec, tools);
    for (const family of [4, 6] as const) {
      for (const name of new Set([prefix, DEFAULT_PREFIX])) {
        const found = await find(kernel, family, name);
        if (found === undefined || isNothing(found)) continue;
        const ours = areOurs(name, found);
        // Chains that another proxy of ours has signed are not what kube-proxy has left.
        if (ours ? name !== prefix : !kubeProxy) {
          kubeProxyStays ||= !ours;
          continue;
        }
        if (ours && (await stays?.(ownersOf(found))) === true) continue;
        await kernel.restore(family, renderRemoval(found), `removing the chains ${name}-*`);
        removed = true;
        for (const place of udpPlaces(name, family, found)) {
          places.set(`${family} ${place.address ?? ''} ${place.port}`, place);
        }
      }
    }
  }
  const flowsStay = await forgetFlows(exec, [...places.values()], local);
  return { removed, kubeProxyStays, flowsStay };
}

/** The flavours that are here. Each has rules of its own, and may hold what an earlier version has left. */
async function installed(exec: Exec, flavors: readonly Flavor[]): Promise<Tools[]> {
  const found: Tools[] = [];
  let missing: unknown;
  for (const flavor of flavors) {
    try {
      found.push(await findTools(exec, flavor));
    } catch (error) {
      if (!isMissing(error)) throw error;
      missing = error;
    }
  }
  if (found.length === 0) throw missing;
  return found;
}

/** Undefined where there is no program for a family. */
async function find(kernel: Kernel, family: Family, prefix: string): Promise<Found | undefined> {
  try {
    return await kernel.find(family, prefix, false);
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

function isMissing(error: unknown): boolean {
  return error instanceof KpngError && error.code === 'KPNG_PORTAL_TOOL_MISSING';
}

const LEADS = /^(\S+) (.*-p udp .*--dport (\d+) .*-j (?:DNAT|REDIRECT) .*)$/;

function* udpPlaces(prefix: string, family: Family, { nat }: Found): Generator<FlowPlace> {
  for (const line of nat.rules) {
    const [, chain = '', match = '', port] = LEADS.exec(line) ?? [];
    if (port === undefined) continue;
    const ofNode = chain.startsWith(`${prefix}-NODEPORT-`);
    const [, address] = /(?:^| )-d ([0-9a-f.:]+)\//.exec(match) ?? [];
    if (address === undefined && !ofNode) continue;
    yield { family, address, port: Number(port), proxyPort: undefined, formerly: 'unknown' };
  }
}
