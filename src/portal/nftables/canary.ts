import { Canary, findOwner } from '../rules/canary.ts';
import type { RuleConfig } from '../rules/config.ts';
import type { RuleCanary } from '../rules/rule-portal.ts';
import { addressKey, portKey, setName, type SetName } from './elements.ts';

/** A canary behind the table's rules, in one family: all of the table comes and goes together. */
export function nftablesCanary({ owner, families }: RuleConfig): RuleCanary<SetName> {
  const family = families.includes(4) ? 4 : 6;
  const canary = new Canary(owner, family);
  return {
    async open() {
      const { place, proxyPort } = await canary.open();
      return [
        {
          set: setName('services', family),
          key: addressKey(place.address, 'TCP', place.port),
          value: String(proxyPort),
        },
        { set: setName('proxy-ports', family), key: portKey('TCP', proxyPort), value: '' },
      ];
    },
    probe: (asked) => canary.probe(asked),
    pidOf: async (asked) => (await findOwner(asked))?.pid,
    close: () => canary.close(),
  };
}
