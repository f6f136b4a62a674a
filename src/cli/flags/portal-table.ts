import { checkTableName, DEFAULT_TABLE } from '../../portal/nftables/table-name.ts';
import { text } from './kinds.ts';
import { flag } from './table.ts';

/** Which table of nftables is ours: of the backend that writes it, and of the command that removes it. */
export const PORTAL_TABLE_FLAGS = {
  'portal-table': flag<string>({
    kind: {
      ...text('name'),
      parse(given) {
        checkTableName(given);
        return given;
      },
    },
    default: DEFAULT_TABLE,
    help: 'Name of the nftables table with the rules. Two proxies on one host need one each.',
    group: 'Addresses',
  }),
} as const;
