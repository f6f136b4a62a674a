import { hostname } from 'node:os';
import { KpngError } from '../../errors.ts';
import { checkPrefix, DEFAULT_PREFIX } from '../../portal/iptables/chains.ts';
import { DEFAULT_ROUTE } from '../../portal/nftables/policy-route.ts';
import { checkTableName, DEFAULT_TABLE } from '../../portal/nftables/table.ts';
import type { TransparentRoute } from '../../portal/rules/backend.ts';
import { nameList } from '../../util/suggest.ts';
import { text, checkedText, choice, integer, markBits, toggle } from './kinds.ts';
import { flag, group, type FlagValues } from './table.ts';

const nodeName = checkedText('name', (given) => {
  if (given === '' || /[\s\p{Cc}/]/u.test(given)) throw new Error('not the name of a node');
});

export const NODE_FLAGS = group('Node', {
  'node-name': flag(nodeName, hostname(), {
    help:
      'Name of this node in the cluster, exactly as written there. It selects local endpoints, topology hints ' +
      'and traffic policies.',
    aliases: ['hostname-override'],
    defaultText: 'the host name',
  }),
});

/** The error if a source has nodes, but not this one. */
export function unknownNode(node: string, names: readonly string[], source: string): KpngError {
  return new KpngError(
    'KPNG_NODE_UNKNOWN',
    `--node-name ${JSON.stringify(node)}: the ${source} has no such node; it has ${nameList(names)}`,
  );
}

const ADDRESSES = 'Addresses';

/** Names of the proxy's tables and chains, for the backend that writes them and for `cleanup`. */
export const PORTAL_NAME_FLAGS = group(ADDRESSES, {
  'portal-table': flag(checkedText('name', checkTableName), DEFAULT_TABLE, {
    help: 'Name of the nftables table for the rules. Two proxies on one host need different ones.',
  }),
  'portal-chain-prefix': flag(checkedText('name', checkPrefix), DEFAULT_PREFIX, {
    help: 'Prefix of the names of the iptables chains for the rules. Two proxies on one host need different ones.',
  }),
  'portal-mark': flag(markBits(), DEFAULT_ROUTE.mark, {
    help: 'Bits of the packet mark of --portal transparent; no other program may set or match them.',
  }),
  'portal-route-table': flag(integer(1, 0xffffffff), DEFAULT_ROUTE.table, {
    help: 'Number of the routing table of --portal transparent, which delivers marked packets to this host.',
  }),
  'portal-rule-priority': flag(integer(1, 32_765), DEFAULT_ROUTE.priority, {
    help: 'Priority of the routing rule of --portal transparent, which sends marked packets to that table.',
  }),
});

export function readRoute(values: FlagValues<typeof PORTAL_NAME_FLAGS>): TransparentRoute {
  return {
    mark: values.portalMark,
    table: values.portalRouteTable,
    priority: values.portalRulePriority,
  };
}

export const IPTABLES_FLAVOR_FLAGS = group(ADDRESSES, {
  'iptables-flavor': flag(choice(['auto', 'nft', 'legacy']), 'auto', {
    help:
      'Which iptables writes the rules where both are installed. auto: the one that holds the rules of ' +
      'Kubernetes, else the one with more rules, else iptables on the PATH.',
  }),
});

export const CLEANUP_FLAGS = {
  ...PORTAL_NAME_FLAGS,
  ...group(ADDRESSES, {
    'kube-proxy-userspace': flag(toggle(), false, {
      help: 'Also remove the iptables chains that kube-proxy left in its userspace mode. Stop kube-proxy first.',
    }),
    'portal-interface': flag(text('name'), '', {
      help: 'Interface to remove service addresses from. Empty: every interface.',
    }),
  }),
};

export type CleanupTargets = FlagValues<typeof CLEANUP_FLAGS>;
