import type { Family } from '../../util/family.ts';
import type { FlowPlace } from '../flow-table.ts';
import { FAMILIES, readKey, setName, type SetName } from './elements.ts';
import type { ElementChange, Ledger } from './ledger.ts';

/**
 * Places whose UDP flows may lead wrong after a write: those that the changes are about, or all that
 * there are (`changes` undefined), when flows may have begun while there were no rules or others.
 */
export function flowPlaces(
  ledger: Pick<Ledger, 'elements'>,
  changes: readonly ElementChange[] | undefined,
): FlowPlace[] {
  const places = new Map<string, FlowPlace>();
  for (const family of FAMILIES) {
    const sets = setsOf(family);
    const maps: readonly SetName[] = [sets.services, sets.nodePorts];
    const names: readonly SetName[] = [...maps, sets.empty, sets.emptyNodePorts];
    const note = (key: string, formerly: FlowPlace['formerly']): void => {
      const { address, protocol, port } = readKey(key);
      if (protocol !== 'UDP') return;
      const value = ledger
        .elements(address === undefined ? sets.nodePorts : sets.services)
        .get(key);
      const proxyPort = value === undefined ? undefined : Number(value);
      places.set(`${family} ${key}`, { family, address, port, proxyPort, formerly });
    };
    if (changes === undefined) {
      for (const name of names)
        for (const key of ledger.elements(name).keys()) note(key, 'unknown');
      continue;
    }
    for (const { set, key, before } of changes) {
      const known = places.get(`${family} ${key}`)?.formerly;
      if (maps.includes(set) && before !== undefined) note(key, Number(before));
      else if (names.includes(set) && known === undefined) note(key, 'past');
    }
  }
  return [...places.values()];
}

function setsOf(family: Family) {
  return {
    services: setName('services', family),
    empty: setName('empty', family),
    nodePorts: setName('node-ports', family),
    emptyNodePorts: setName('empty-node-ports', family),
  };
}
