import { checkPrefix, DEFAULT_PREFIX } from '../../portal/iptables/chains.ts';
import { text } from './kinds.ts';
import { flag } from './table.ts';

/** Which chains of iptables are ours: of the backend that writes them, and of the command that removes them. */
export const PORTAL_CHAINS_FLAGS = {
  'portal-chain-prefix': flag<string>({
    kind: {
      ...text('name'),
      parse(given) {
        checkPrefix(given);
        return given;
      },
    },
    default: DEFAULT_PREFIX,
    help:
      'What the names of the iptables chains with the rules begin with. Two proxies on one host ' +
      'need one each.',
    group: 'Addresses',
  }),
} as const;
