import { systemExec } from '../exec.ts';
import type { RuleConfig } from '../rules/config.ts';
import { RulePortal, type RuleCanary, type RulePortalOptions } from '../rules/rule-portal.ts';
import { nftablesCanary } from './canary.ts';
import type { SetName } from './elements.ts';
import { NftablesStore } from './store.ts';
import { DEFAULT_TABLE } from './table-name.ts';
import { elementsOf } from './translate.ts';

export interface NftablesPortalOptions extends RulePortalOptions {
  /** Default `kpng-userspace`. Several proxiers on one host need a table each. */
  readonly table?: string;
  /** Makes the canary; tests have one without sockets. */
  readonly canary?: (config: RuleConfig) => RuleCanary<SetName>;
}

/**
 * Leads traffic to the proxy ports with one table of nftables.
 *
 * The number of rules is constant; everything about services is in maps and sets, so that a change of
 * a service is a few elements.
 */
export class NftablesPortal extends RulePortal<SetName> {
  /** Throws KPNG_USAGE for a bind address or table name that cannot be, RangeError for node port addresses. */
  constructor(options: NftablesPortalOptions) {
    const { table = DEFAULT_TABLE, exec = systemExec, canary = nftablesCanary } = options;
    super(options, {
      kind: 'nftables',
      apart: 'give each a --portal-table of its own',
      store: new NftablesStore(exec, table),
      items: (_, leads, proxyPorts) => elementsOf(leads, proxyPorts),
      canary,
    });
  }
}
