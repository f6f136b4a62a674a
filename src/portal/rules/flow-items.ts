/**
 * Where UDP flows lead, kept in the ledger beside the rules that lead them, so that it is known of each
 * change which remembered flows it makes wrong.
 */
import type { Family } from '../../util/family.ts';
import type { FlowPlace } from '../flow-table.ts';
import type { Lead } from '../redirect-plan.ts';
import { FAMILIES } from './config.ts';
import type { Item, ItemChange, LedgerView } from './ledger.ts';

/** Sets of the ledger that are not written anywhere. */
export type FlowSet = `flows${Family}`;

/** The place of each UDP portal: `10.0.0.1 53` or `node 30053`, with the proxy port, or nothing where it is refused. */
export function flowItemsOf(leads: readonly Lead[]): Item<FlowSet>[] {
  return leads.flatMap(({ family, portal, proxyPort }) => {
    if (portal.protocol !== 'UDP') return [];
    const key = `${portal.address ?? 'node'} ${portal.port}`;
    return [{ set: `flows${family}` as const, key, value: String(proxyPort ?? '') }];
  });
}

/**
 * Places whose UDP flows may lead wrong after a write: those that the changes are about, or all that
 * there are (`changes` undefined), when flows may have begun while there were no rules or others.
 */
export function flowPlaces(
  ledger: LedgerView<FlowSet>,
  changes: readonly ItemChange[] | undefined,
): FlowPlace[] {
  const places: FlowPlace[] = [];
  const note = (family: Family, key: string, now = '', before?: string): void => {
    const [address = '', port] = key.split(' ');
    places.push({
      family,
      address: address === 'node' ? undefined : address,
      port: Number(port),
      proxyPort: portOf(now),
      formerly: before === undefined ? 'unknown' : (portOf(before) ?? 'past'),
    });
  };
  for (const family of FAMILIES) {
    const set = `flows${family}` as const;
    if (changes === undefined) {
      for (const [key, now] of ledger.items(set)) note(family, key, now);
      continue;
    }
    for (const change of changes) {
      if (change.set === set) note(family, change.key, change.after, change.before ?? '');
    }
  }
  return places;
}

/** Whether an item is only about flows. */
export function isFlowSet(set: string): boolean {
  return set.startsWith('flows');
}

function portOf(value: string): number | undefined {
  return value === '' ? undefined : Number(value);
}
