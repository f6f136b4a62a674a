import { text, toggle } from './kinds.ts';
import { PORTAL_CHAINS_FLAGS } from './portal-chains.ts';
import { PORTAL_TABLE_FLAGS } from './portal-table.ts';
import { flag, type FlagValues } from './table.ts';

/** Flags of the command `cleanup`. */
export const CLEANUP_FLAGS = {
  ...PORTAL_TABLE_FLAGS,
  ...PORTAL_CHAINS_FLAGS,
  'kube-proxy-userspace': flag<boolean>({
    kind: toggle(),
    default: false,
    help:
      'Remove the iptables chains that kube-proxy has left in its userspace mode, too. Stop it before. ' +
      'Off: only what a proxy of ours has signed.',
    group: 'Addresses',
  }),
  'portal-interface': flag<string>({
    kind: text('name'),
    default: '',
    help: 'The interface that service addresses are removed from. Empty: every interface.',
    group: 'Addresses',
  }),
} as const;

/** What the command `cleanup` is to remove. */
export interface CleanupTargets {
  /** Name of the nftables table. */
  readonly table: string;
  /** What the names of our iptables chains begin with. */
  readonly chainPrefix: string;
  /** Whether the chains of kube-proxy's userspace mode go, too. */
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
