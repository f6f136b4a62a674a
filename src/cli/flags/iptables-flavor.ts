import { choice } from './kinds.ts';
import { flag } from './table.ts';

/** Which of the two kinds of iptables writes rules: of every backend that has iptables write some. */
export const IPTABLES_FLAVOR_FLAGS = {
  'iptables-flavor': flag<'auto' | 'nft' | 'legacy'>({
    kind: choice(['auto', 'nft', 'legacy']),
    default: 'auto',
    help:
      'Which iptables writes the rules, where both are installed. auto: the one whose rules those ' +
      'of Kubernetes are among, else the one with more rules, else what iptables on the PATH is.',
    group: 'Addresses',
  }),
} as const;
