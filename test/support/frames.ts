import { OpItem } from '../../src/api/generated/localv1/api.ts';
import { opText } from './api-client.ts';

/** The operations in a piece of whole frames. */
export function itemsOf(frames: Buffer): OpItem[] {
  const items: OpItem[] = [];
  for (let at = 0; at < frames.length;) {
    const end = at + 5 + frames.readUInt32BE(at + 1);
    items.push(OpItem.decode(frames.subarray(at + 5, end)));
    at = end;
  }
  return items;
}

/** A change set as short texts, see `opText`; undefined: there was none. */
export function textsOf(changeSet: Iterable<Buffer> | undefined): string[] | undefined {
  return changeSet && [...changeSet].flatMap(itemsOf).map(opText);
}
