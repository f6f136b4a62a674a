import { KpngError } from '../../errors.ts';

/** The default name of the table. */
export const DEFAULT_TABLE = 'kpng-userspace';

/** Throws KPNG_USAGE for an invalid table name. */
export function checkTableName(name: string): void {
  if (/^[a-zA-Z][\w.-]{0,99}$/.test(name)) return;
  throw new KpngError(
    'KPNG_USAGE',
    `${JSON.stringify(name)} cannot be the name of an nftables table`,
  );
}
