/**
 * Where UDP flows go, kept beside the rules that send them there, so that it is known of each change which
 * remembered flows it makes stale.
 */
import type { Family } from '../../util/family.ts';
import type { FlowPlace } from '../flows.ts';
import type { Redirect } from '../redirect-plan.ts';
import { FAMILIES } from './backend.ts';
import type { Item, ItemChange, Items } from './items.ts';

/** Sets that are not written to the kernel. */
export type FlowSet = `flows${Family}`;

/** The place of each UDP portal: `10.0.0.1 53` or `node 30053`, with the proxy port, or nothing where it is refused. */
export function flowItemsOf(redirects: readonly Redirect[]): Item<FlowSet>[] {
  return redirects.flatMap(({ family, portal, proxyPort }) => {
    if (portal.protocol !== 'UDP') return [];
    const key = `${portal.address ?? 'node'} ${portal.port}`;
    return [{ set: `flows${family}` as const, key, value: String(proxyPort ?? '') }];
  });
}

/**
 * Places whose UDP flows may be stale: those that changes are about; `all` that there are, when flows may have
 * begun while there were no rules or others; or all after the rules were `removed`.
 */
export function flowPlaces(
  items: Items<FlowSet>,
  changes: readonly ItemChange[] | 'all' | 'removed',
): FlowPlace[] {
  return FAMILIES.flatMap((family) => {
    const set = `flows${family}` as const;
    if (typeof changes === 'string') {
      const now = (value: string): string => (changes === 'all' ? value : '');
      return [...items.items(set)].map(([key, value]) =>
        placeOf(family, key, now(value), 'unknown'),
      );
    }
    return changes
      .filter((change) => change.set === set)
      .map(({ key, before = '', after = '' }) =>
        placeOf(family, key, after, portOf(before) ?? 'past'),
      );
  });
}

function placeOf(
  family: Family,
  key: string,
  now: string,
  formerly: FlowPlace['formerly'],
): FlowPlace {
  const [address, port] = key.split(' ');
  return {
    family,
    address: address === 'node' ? undefined : address,
    port: Number(port),
    proxyPort: portOf(now),
    formerly,
  };
}

/** Whether an item is only about flows. */
export function isFlowSet(set: string): boolean {
  return set.startsWith('flows');
}

function portOf(value: string): number | undefined {
  return value === '' ? undefined : Number(value);
}
