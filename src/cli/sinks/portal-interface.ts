import { KpngError } from '../../errors.ts';
import type { Exec } from '../../portal/exec.ts';
import type { AddressKeeper } from '../../portal/interface/keeper.ts';
import { systemClock } from '../../util/clock.ts';
import type { UserspaceOptions } from './to-userspace.ts';

/**
 * Makes what puts service addresses on the interface of `--portal-interface`; undefined when none is
 * named. Throws KPNG_USAGE for a name that no interface can have, and on systems that cannot do it.
 */
export async function createKeeper(
  options: Pick<UserspaceOptions, 'portalInterface' | 'cleanupOnExit'>,
  exec?: Exec,
  platform: NodeJS.Platform = process.platform,
): Promise<AddressKeeper | undefined> {
  const { portalInterface: name, cleanupOnExit: removeOnClose } = options;
  if (name === '') return undefined;
  if (platform !== 'linux') {
    throw new KpngError(
      'KPNG_USAGE',
      '--portal-interface works on Linux only in this version; give the host the addresses yourself',
    );
  }
  const [{ AddressKeeper }, { linuxInterface }] = await Promise.all([
    import('../../portal/interface/keeper.ts'),
    import('../../portal/interface/linux.ts'),
  ]);
  const link = linuxInterface({ name, ...(exec !== undefined && { exec }) });
  return new AddressKeeper({ link, removeOnClose, clock: systemClock, random: Math.random });
}
