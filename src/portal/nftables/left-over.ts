/** Removes the rules that a portal of a dead process left behind. */
import type { KpngError } from '../../errors.ts';
import type { Exec } from '../exec.ts';
import { clearFlows, type FlowAddress } from '../flows.ts';
import { nft, removeNftables } from './backend.ts';
import { elementsIn, linesOf } from './listing.ts';
import type { TransparentRoute } from '../rules/backend.ts';
import { PolicyRoute } from './policy-route.ts';
import { checkTableName } from './table-name.ts';
import { MARKING_CHAIN } from './transparent-chains.ts';

/**
 * Removes the table, and the UDP flows that it redirected: their clients would keep sending to closed ports.
 *
 * Succeeds if there is no table. Rejects with KPNG_PORTAL_*; resolves with an error if only flows are left.
 */
export async function cleanUpNftables(
  exec: Exec,
  table: string,
  local: ReadonlySet<string>,
  route?: TransparentRoute,
): Promise<KpngError | undefined> {
  checkTableName(table);
  const addresses = await udpAddresses(exec, table);
  await removeNftables(exec, table);
  if (route !== undefined) await new PolicyRoute(exec, route).remove();
  return clearFlows(exec, addresses, local);
}

/**
 * Removes the rule and route of a transparent portal unless a table on this host marks packets for them, maybe one of
 * another process. Returns whether there were any. Rejects with KPNG_PORTAL_*.
 */
export async function removeUnusedRoute(exec: Exec, route: TransparentRoute): Promise<boolean> {
  const chains = await nft(exec, 'listing chains', ['list', 'chains', 'inet']);
  if (chains.includes(`chain ${MARKING_CHAIN} `)) return false;
  return new PolicyRoute(exec, route).remove();
}

/** The UDP portals in the table; none if it does not exist or cannot be read. */
async function udpAddresses(exec: Exec, table: string): Promise<FlowAddress[]> {
  const args = ['list', 'table', 'inet', table];
  // Removing the table reports any problem other than its absence.
  const listing = await nft(exec, 'looking for UDP portals', args).catch(() => '');
  return [...linesOf(listing)].flatMap(({ block, text }) => addressesIn(block, text));
}

function addressesIn(block: string, text: string): FlowAddress[] {
  const [, digit] = /^(?:services|node-ports)([46])$/.exec(block) ?? [];
  if (digit === undefined) return [];
  const family = digit === '4' ? 4 : 6;
  return [...elementsIn(text)].flatMap(([key]) => {
    const [, address, port] = /^(?:(\S+) \. )?udp \. (\d+)$/.exec(key) ?? [];
    if (port === undefined) return [];
    return [{ family, address, port: Number(port), proxyPort: undefined }];
  });
}
