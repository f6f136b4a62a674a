import { KpngError } from '../../errors.ts';
import type { Log } from '../../observe/log.ts';
import type { Exec } from '../../portal/exec.ts';
import type { Flavor } from '../../portal/iptables/tools.ts';
import { hostAddresses } from '../../util/host-addresses.ts';
import type { UserspaceOptions } from './to-userspace.ts';

/** What leads traffic now. */
export type Current =
  { readonly kind: 'nftables' } | { readonly kind: 'iptables'; readonly flavor: Flavor };

/**
 * Removes rules of our names that a process which has ended has left with another portal, or another
 * iptables: they would go on leading clients to where nobody listens. Those of a process that runs stay.
 * Whatever cannot be looked at or removed is told, and is no reason to fail.
 */
export async function removeStaleRules(
  current: Current,
  { portalTable: table, portalChainPrefix: prefix }: UserspaceOptions,
  log: Log,
  exec: Exec,
): Promise<void> {
  const { isServed } = await import('../../portal/rules/canary.ts');
  const local = new Set(hostAddresses().map(({ address }) => address));
  const attempt = async (what: string, remove: () => Promise<boolean>): Promise<void> => {
    try {
      if (await remove()) log.info('Removed rules that a former process has left', { what });
    } catch (error) {
      if (!(error instanceof KpngError)) throw error;
      // Without the programs there is nothing that they could have left.
      if (error.code === 'KPNG_PORTAL_TOOL_MISSING') return;
      log.warn('Rules that a former process has left could not be removed', { what, err: error });
    }
  };
  if (current.kind === 'iptables') {
    await attempt(`the nftables table inet ${table}`, async () => {
      const [{ tableOwner }, { cleanUpNftables }] = await Promise.all([
        import('../../portal/nftables/store.ts'),
        import('../../portal/nftables/left-over.ts'),
      ]);
      const owner = await tableOwner(exec, table);
      if (owner === undefined || (await isServed(owner))) return false;
      await cleanUpNftables(exec, table, local);
      return true;
    });
  }
  const flavors = (['nft', 'legacy'] as const).filter(
    (flavor) => current.kind === 'nftables' || flavor !== current.flavor,
  );
  for (const flavor of flavors) {
    await attempt(`the chains ${prefix}-* of iptables-${flavor}`, async () => {
      const { cleanUpIptables } = await import('../../portal/iptables/left-over.ts');
      const stays = async (owners: readonly string[]): Promise<boolean> => {
        const served = await Promise.all(owners.map((owner) => isServed(owner)));
        return served.includes(true);
      };
      const options = { prefix, kubeProxy: false, local, flavors: [flavor], stays };
      return (await cleanUpIptables(exec, options)).removed;
    });
  }
}
