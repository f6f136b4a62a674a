import { KpngError } from '../../errors.ts';
import type { Log } from '../../observe/log.ts';
import type { Exec } from '../../portal/exec.ts';
import { cleanUpIptables } from '../../portal/iptables/backend.ts';
import type { Flavor } from '../../portal/iptables/tools.ts';
import { cleanUpNftables, removeUnusedRoute, tableOwner } from '../../portal/nftables/backend.ts';
import { removeTrial } from '../../portal/nftables/trial.ts';
import { findOwner } from '../../portal/rules/canary.ts';
import type { OtherWriter } from '../../portal/rules/other-writers.ts';
import { hostAddresses } from '../../util/host-addresses.ts';
import type { UserspaceOptions } from './userspace-options.ts';

export type Current =
  | { readonly kind: 'nftables' | 'transparent' }
  | { readonly kind: 'iptables'; readonly flavor: Flavor };

/**
 * Removes stale rules under our names, written by an ended process with another portal or iptables flavour: they
 * would redirect clients to closed ports. Rules of running processes stay and are returned. Failures are only logged.
 */
export async function removeStaleRules(
  current: Current,
  { portalTable: table, portalChainPrefix: prefix, portalRoute: route }: UserspaceOptions,
  log: Log,
  exec: Exec,
): Promise<readonly OtherWriter[]> {
  const local = new Set(hostAddresses().map(({ address }) => address));
  const writers = new Map<string, Set<number>>();
  const attempt = async (
    what: string,
    remove: (stays: (owners: readonly string[]) => Promise<boolean>) => Promise<boolean>,
  ): Promise<void> => {
    const stays = async (owners: readonly string[]): Promise<boolean> => {
      const found = await Promise.all(owners.map((owner) => findOwner(owner)));
      const living = found.filter((owner) => owner !== undefined);
      if (living.length === 0) return false;
      const pids = writers.get(what) ?? new Set();
      for (const { pid } of living) if (pid !== undefined) pids.add(pid);
      writers.set(what, pids);
      return true;
    };
    try {
      if (await remove(stays)) log.info('Removed stale rules of a previous process', { what });
    } catch (error) {
      if (!(error instanceof KpngError)) throw error;
      // Without the programs, there are no rules.
      if (error.code === 'KPNG_PORTAL_TOOL_MISSING') return;
      log.warn('Stale rules of a previous process not removed', { what, err: error });
    }
  };
  if (current.kind === 'iptables') {
    await attempt(`the nftables table inet ${table}`, async (stays) => {
      const owner = await tableOwner(exec, table);
      if (owner === undefined || (await stays([owner]))) return false;
      await cleanUpNftables(exec, table, local);
      return true;
    });
  }
  await attempt('the nftables table of a trial', () => removeTrial(exec, table));
  if (current.kind !== 'transparent') {
    const rule = `the routing rule of mark 0x${route.mark.toString(16)}`;
    await attempt(rule, () => removeUnusedRoute(exec, route));
  }
  const flavors = (['nft', 'legacy'] as const).filter(
    (flavor) => current.kind !== 'iptables' || flavor !== current.flavor,
  );
  for (const flavor of flavors) {
    await attempt(`the chains ${prefix}-* of iptables-${flavor}`, async (stays) => {
      const options = { prefix, kubeProxy: false, local, flavors: [flavor], stays };
      return (await cleanUpIptables(exec, options)).removed;
    });
  }
  return [...writers].map(([what, pids]) => ({ what, pids: [...pids] }));
}
