import { systemExec } from '../exec.ts';
import type { ProxyPort, Redirect } from '../redirect-plan.ts';
import type { RuleConfig } from '../rules/items.ts';
import { Canary, findOwner } from '../rules/canary.ts';
import { networksOf } from '../rules/host.ts';
import { RulePortal, type RuleCanary, type RulePortalOptions } from '../rules/rule-portal.ts';
import { NftablesBackend } from './backend.ts';
import { DEFAULT_TABLE } from './table-name.ts';
import { addressKey, portKey, setName, type Element, type SetName } from './table.ts';

export interface NftablesPortalOptions extends RulePortalOptions {
  /** Default `kpng-userspace`. Several proxiers on one host need a table each. */
  readonly table?: string;
  /** Makes the canary; tests have one without sockets. */
  readonly canary?: (config: RuleConfig) => RuleCanary<SetName>;
}

/**
 * Redirects traffic with one table of nftables: a constant number of rules, and maps of services. A change is a few
 * elements.
 */
export class NftablesPortal extends RulePortal<SetName> {
  /** Throws KPNG_USAGE for a bind address or table name that cannot be, RangeError for node port addresses. */
  constructor(options: NftablesPortalOptions) {
    const { table = DEFAULT_TABLE, exec = systemExec, canary = nftablesCanary } = options;
    super(options, {
      kind: 'nftables',
      apart: 'give each a --portal-table of its own',
      backend: new NftablesBackend(exec, table),
      items: (_, redirects, proxyPorts) => elementsOf(redirects, proxyPorts),
      canary,
    });
  }
}

/** The elements of one service port. */
function elementsOf(redirects: readonly Redirect[], proxyPorts: readonly ProxyPort[]): Element[] {
  return [
    ...redirects.flatMap((redirect) => elementsOfRedirect(redirect)),
    ...proxyPorts.map(({ family, protocol, port }) => ({
      set: setName('proxy-ports', family),
      key: portKey(protocol, port),
      value: '',
    })),
  ];
}

function elementsOfRedirect({ family, portal, proxyPort }: Redirect): Element[] {
  const { address, protocol, port, sourceRanges } = portal;
  const isNodePort = address === undefined;
  const key = isNodePort ? portKey(protocol, port) : addressKey(address, protocol, port);
  const elements: Element[] = [
    proxyPort === undefined
      ? { set: setName(isNodePort ? 'empty-node-ports' : 'empty', family), key, value: '' }
      : {
          set: setName(isNodePort ? 'node-ports' : 'services', family),
          key,
          value: String(proxyPort),
        },
  ];
  if (isNodePort || sourceRanges.length === 0) return elements;
  // With ranges of the other family only, no client is allowed: guard the address.
  elements.push({ set: setName('guarded', family), key, value: '' });
  for (const network of networksOf(sourceRanges, family)) {
    elements.push({ set: setName('allowed', family), key: `${key} . ${network}`, value: '' });
  }
  return elements;
}

/** A canary behind the table's rules, in one family: the table is added and removed as a whole. */
export function nftablesCanary({ owner, families }: RuleConfig): RuleCanary<SetName> {
  const family = families.includes(4) ? 4 : 6;
  const canary = new Canary(owner, family);
  return {
    async open() {
      const proxyPort = await canary.open();
      const { address, port } = canary.address;
      return [
        {
          set: setName('services', family),
          key: addressKey(address, 'TCP', port),
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
