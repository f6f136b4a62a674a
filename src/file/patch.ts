import { hash } from 'node:crypto';
import type { Range } from '../store/global-store.ts';
import type { RawEndpoint, RawService, RawServiceItem } from './raw.ts';

/** From this many endpoints on, changes of a service are sent as a patch. */
const LARGE = 1000;

/** A changed service item that is large: the new list of its endpoints, in which ranges refer to the previous one. */
export interface ItemPatch {
  readonly service: RawService;
  readonly patch: readonly (RawEndpoint | Range)[];
}

/** Bytes of a digest. */
const SIZE = 16;

/** The endpoints of a large service item as digests, one after the other; undefined: it is not large. */
export function digestsOf({ endpoints }: RawServiceItem): Buffer | undefined {
  if (!endpoints || endpoints.length < LARGE) return undefined;
  const digests = Buffer.allocUnsafeSlow(endpoints.length * SIZE);
  for (const [index, endpoint] of endpoints.entries()) {
    hash('sha256', JSON.stringify(endpoint), 'buffer').copy(digests, index * SIZE, 0, SIZE);
  }
  return digests;
}

/**
 * The item as a patch. `before`, `after`: the digests of its previous and its current endpoints; undefined if one of them
 * is not large.
 */
export function patchOf(
  item: RawServiceItem,
  before: Buffer | undefined,
  after: Buffer | undefined,
): ItemPatch | undefined {
  if (before === undefined || after === undefined) return undefined;
  const patch: (RawEndpoint | Range)[] = [];
  let indexes: ReadonlyMap<string, number> | undefined;
  let [from, to] = [0, 0];
  const endRange = (): void => {
    if (from < to) patch.push({ from, to });
    from = to;
  };
  for (const [index, endpoint] of (item.endpoints ?? []).entries()) {
    const digest = digestAt(after, index);
    if (digestAt(before, to) !== digest) {
      endRange();
      indexes ??= indexesIn(before);
      const previous = indexes.get(digest);
      if (previous === undefined) {
        patch.push(endpoint);
        continue;
      }
      from = to = previous;
    }
    to += 1;
  }
  endRange();
  return { service: item.service, patch };
}

/** Empty behind the last one. */
function digestAt(digests: Buffer, index: number): string {
  return digests.toString('latin1', index * SIZE, (index + 1) * SIZE);
}

function indexesIn(digests: Buffer): ReadonlyMap<string, number> {
  const indexes = new Map<string, number>();
  for (let at = 0; at * SIZE < digests.length; at += 1) indexes.set(digestAt(digests, at), at);
  return indexes;
}
