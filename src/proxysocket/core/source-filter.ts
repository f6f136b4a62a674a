import { BlockList, isIP } from 'node:net';
import type { Family } from '../../util/family.ts';
import { sourceRangeInvalid } from '../events.ts';

/** Whether a client is in a list of networks. */
export type SourceFilter = (client: string) => boolean;

/**
 * Makes the filter of a listener from CIDR ranges; undefined when all clients may connect.
 *
 * An invalid range admits no client, rather than all, and causes an event. A client whose address is not known
 * because it has already left is refused. `net.BlockList` takes about 0.1 us for a check in Node 26.
 */
export function sourceFilter(
  servicePort: string,
  ranges: readonly string[] | undefined,
): SourceFilter | undefined {
  if (ranges === undefined || ranges.length === 0) return undefined;
  // One for each family: in a common list, an IPv6 range such as ::/0 would also match IPv4 clients.
  const lists = { 4: new BlockList(), 6: new BlockList() };
  for (const range of ranges) {
    const subnet = parseRange(range);
    if (subnet !== undefined) {
      const { family, address, prefix } = subnet;
      lists[family].addSubnet(address, prefix, TYPES[family]);
    } else if (sourceRangeInvalid.hasSubscribers) {
      sourceRangeInvalid.publish({ servicePort, range });
    }
  }
  return (client) => {
    const family = isIP(client);
    return (family === 4 || family === 6) && lists[family].check(client, TYPES[family]);
  };
}

const TYPES = { 4: 'ipv4', 6: 'ipv6' } as const;

function parseRange(
  range: string,
): { family: Family; address: string; prefix: number } | undefined {
  const [, address = '', digits = ''] = /^\s*([^/\s]+)\/(\d{1,3})\s*$/.exec(range) ?? [];
  const family = isIP(address);
  const prefix = Number(digits);
  if (family !== 4 && family !== 6) return undefined;
  return prefix > (family === 4 ? 32 : 128) ? undefined : { family, address, prefix };
}
