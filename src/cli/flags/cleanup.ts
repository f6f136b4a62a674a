import { text } from './kinds.ts';
import { PORTAL_TABLE_FLAGS } from './portal-table.ts';
import { flag } from './table.ts';

/** Flags of the command `cleanup`. */
export const CLEANUP_FLAGS = {
  ...PORTAL_TABLE_FLAGS,
  'portal-interface': flag<string>({
    kind: text('name'),
    default: '',
    help: 'The interface that service addresses are removed from. Empty: every interface.',
    group: 'Addresses',
  }),
} as const;
