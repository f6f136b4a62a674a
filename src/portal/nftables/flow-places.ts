import type { FlowPlace } from '../flow-table.ts';
import { FAMILIES, readKey, setName, type Family, type SetName } from './elements.ts';
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
    const note = (key: string): void => {
      const { address, protocol, port } = readKey(key);
      if (protocol !== 'UDP') return;
      const maps = address === undefined ? sets.nodePorts : sets.services;
      const value = ledger.elements(maps).get(key);
      const proxyPort = value === undefined ? undefined : Number(value);
      places.set(`${family} ${key}`, { family, address, port, proxyPort });
    };
    const names: SetName[] = [sets.services, sets.empty, sets.nodePorts, sets.emptyNodePorts];
    if (changes === undefined) {
      for (const name of names) for (const key of ledger.elements(name).keys()) note(key);
    } else {
      for (const { set, key } of changes) if (names.includes(set)) note(key);
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
