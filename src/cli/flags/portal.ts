import { checkPrefix, DEFAULT_PREFIX } from '../../portal/iptables/chains.ts';
import { checkTableName, DEFAULT_TABLE } from '../../portal/nftables/table-name.ts';
import { checkedText, choice, text, toggle } from './kinds.ts';
import { flag, group, type FlagValues } from './table.ts';

const ADDRESSES = 'Addresses';

/** Which tables and chains belong to a proxy: of the backend that writes them, and of `cleanup`. */
export const PORTAL_NAME_FLAGS = group(ADDRESSES, {
  'portal-table': flag(
    checkedText('name', checkTableName),
    DEFAULT_TABLE,
    'Name of the nftables table for the rules. Two proxies on one host need different ones.',
  ),
  'portal-chain-prefix': flag(
    checkedText('name', checkPrefix),
    DEFAULT_PREFIX,
    'Prefix of the names of the iptables chains for the rules. Two proxies on one host need different ones.',
  ),
});

/** Which iptables writes rules: of every backend that uses iptables. */
export const IPTABLES_FLAVOR_FLAGS = group(ADDRESSES, {
  'iptables-flavor': flag(
    choice(['auto', 'nft', 'legacy']),
    'auto',
    'Which iptables writes the rules where both are installed. auto: the one that holds the rules of ' +
      'Kubernetes, else the one with more rules, else iptables on the PATH.',
  ),
});

/** Flags of the command `cleanup`. */
export const CLEANUP_FLAGS = {
  ...PORTAL_NAME_FLAGS,
  ...group(ADDRESSES, {
    'kube-proxy-userspace': flag(
      toggle(),
      false,
      'Also remove the iptables chains that kube-proxy left in its userspace mode. Stop kube-proxy first.',
    ),
    'portal-interface': flag(
      text('name'),
      '',
      'Interface to remove service addresses from. Empty: every interface.',
    ),
  }),
};

/** What the command `cleanup` removes. */
export interface CleanupTargets {
  /** Name of the nftables table. */
  readonly table: string;
  /** Prefix of the names of our iptables chains. */
  readonly chainPrefix: string;
  /** Whether the chains of kube-proxy's userspace mode are removed as well. */
  readonly kubeProxy: boolean;
  /** Interface to remove addresses from; empty: every one. */
  readonly portalInterface: string;
}

export function readCleanup(values: FlagValues<typeof CLEANUP_FLAGS>): CleanupTargets {
  return {
    table: values['portal-table'],
    chainPrefix: values['portal-chain-prefix'],
    kubeProxy: values['kube-proxy-userspace'],
    portalInterface: values['portal-interface'],
  };
}
