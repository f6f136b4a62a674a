import { BlockList, isIP } from 'node:net';
import { sourceRangeInvalid } from './events.ts';

/** Says whether a client may come in. */
export type SourceFilter = (client: string) => boolean;

/**
 * Makes the filter of a listener from CIDR ranges; undefined when everybody may come in.
 *
 * A range that cannot be read lets nobody in, rather than everybody, and is told as an event. A
 * client whose address is not known (it was gone before it could be asked) is refused.
 *
 * `net.BlockList` is as fast as a loop over parsed numbers, about 0.1 us for a check in Node 26.
 */
export function sourceFilter(
  servicePort: string,
  ranges: readonly string[] | undefined,
): SourceFilter | undefined {
  if (ranges === undefined || ranges.length === 0) return undefined;
  const list = new BlockList();
  for (const range of ranges) {
    if (!addRange(list, range.trim()) && sourceRangeInvalid.hasSubscribers) {
      sourceRangeInvalid.publish({ servicePort, range });
    }
  }
  return (client) => {
    const family = isIP(client);
    return family !== 0 && list.check(client, family === 4 ? 'ipv4' : 'ipv6');
  };
}

function addRange(list: BlockList, range: string): boolean {
  const match = /^([^/]+)\/(\d{1,3})$/.exec(range);
  const [, address = '', digits = ''] = match ?? [];
  const family = isIP(address);
  const prefix = Number(digits);
  if (match === null || family === 0 || prefix > (family === 4 ? 32 : 128)) return false;
  list.addSubnet(address, prefix, family === 4 ? 'ipv4' : 'ipv6');
  return true;
}
