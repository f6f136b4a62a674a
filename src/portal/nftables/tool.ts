/** What is done to the table without a portal. */
import { KpngError } from '../../errors.ts';
import type { Exec } from '../exec.ts';
import type { RuleConfig } from '../rules/config.ts';
import { nftFailure } from './failure.ts';
import { renderTable } from './rules.ts';
import { renderRemoval } from './script.ts';
import { checkTableName } from './table-name.ts';

/**
 * Removes the table with everything in it; fine when there is none. Rejects with KPNG_PORTAL_* when
 * it cannot be done. A portal that runs puts its table back.
 */
export async function removeNftables(exec: Exec, table: string): Promise<void> {
  checkTableName(table);
  try {
    await exec({ file: 'nft', args: ['-f', '-'], stdin: renderRemoval(table) });
  } catch (cause) {
    throw nftFailure(cause, `removing the nftables table inet ${table}`);
  }
}

/**
 * Why the nftables portal cannot be used here; undefined: it can. Asks nft and the kernel to check
 * the rules, and changes nothing.
 */
export async function nftablesProblem(
  exec: Exec,
  families: RuleConfig['families'],
): Promise<KpngError | undefined> {
  // A name that no table has, so that what is there is not part of the check.
  const stdin = renderTable('kpng-userspace-check', {
    owner: 'check',
    families,
    targets: { 4: '192.0.2.1', 6: '2001:db8::1' },
    nodePortNetworks: { 4: ['0.0.0.0/0'], 6: ['::/0'] },
  });
  try {
    await exec({ file: 'nft', args: ['-c', '-f', '-'], stdin });
    return undefined;
  } catch (cause) {
    const error = nftFailure(cause, 'checking whether nftables can be used');
    if (error.blame === 'host' || error.code === 'KPNG_PORTAL_UNSUPPORTED') return error;
    return new KpngError('KPNG_PORTAL_UNSUPPORTED', error.message, { cause });
  }
}
