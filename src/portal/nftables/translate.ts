import type { Lead, ProxyPort } from '../redirect-plan.ts';
import { networksOf } from '../rules/networks.ts';
import { addressKey, portKey, setName, type Element } from './elements.ts';

/** The elements of one service port. */
export function elementsOf(leads: readonly Lead[], proxyPorts: readonly ProxyPort[]): Element[] {
  return [
    ...leads.flatMap((lead) => elementsOfLead(lead)),
    ...proxyPorts.map(({ family, protocol, port }) => ({
      set: setName('proxy-ports', family),
      key: portKey(protocol, port),
      value: '',
    })),
  ];
}

function elementsOfLead({ family, portal, proxyPort }: Lead): Element[] {
  const { address, protocol, port, sourceRanges } = portal;
  if (address === undefined) {
    const key = portKey(protocol, port);
    return [
      proxyPort === undefined
        ? { set: setName('empty-node-ports', family), key, value: '' }
        : { set: setName('node-ports', family), key, value: String(proxyPort) },
    ];
  }
  const key = addressKey(address, protocol, port);
  const elements: Element[] = [
    proxyPort === undefined
      ? { set: setName('empty', family), key, value: '' }
      : { set: setName('services', family), key, value: String(proxyPort) },
  ];
  if (sourceRanges.length === 0) return elements;
  // Ranges of the other family only: nobody is let in, as somebody wanted the address guarded.
  elements.push({ set: setName('guarded', family), key, value: '' });
  for (const network of networksOf(sourceRanges, family)) {
    elements.push({ set: setName('allowed', family), key: `${key} . ${network}`, value: '' });
  }
  return elements;
}
