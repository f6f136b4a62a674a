import type { Log } from '../../observe/log.ts';
import type { Exec } from '../../portal/exec.ts';
import type { InterfaceAddresses } from '../../portal/interface/addresses.ts';
import type { AddressKeeper } from '../../portal/interface/keeper.ts';
import { systemClock } from '../../util/clock.ts';
import { usage } from '../flags/read.ts';
import type { UserspaceOptions } from './userspace-options.ts';

type KeeperOptions = Pick<UserspaceOptions, 'portalInterface' | 'cleanupOnExit'>;

/** Host-specific parts. */
export interface KeeperHost {
  readonly platform: NodeJS.Platform;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/**
 * Creates the keeper of the service addresses on `--portal-interface`; undefined if the flag is empty, or absent on
 * systems other than Windows. Throws KPNG_USAGE for an invalid name, and on systems that do not support it.
 */
export async function createKeeper(
  { portalInterface: name, cleanupOnExit: removeOnClose }: KeeperOptions,
  log: Log,
  exec?: Exec,
  { platform, env }: KeeperHost = process,
): Promise<AddressKeeper | undefined> {
  if (name === '') return undefined;
  let link: InterfaceAddresses;
  if (platform === 'win32') {
    const { chooseInterface, namedInterfaces, windowsLink } =
      await import('../../portal/windows/keeper-link.ts');
    const chosen = chooseInterface(name ?? '', env, namedInterfaces());
    const { name: interfaceName, reason } = chosen;
    log.info('Chose the interface for service addresses', { interface: interfaceName, reason });
    link = windowsLink(interfaceName, env, exec);
  } else if (name === undefined) {
    return undefined;
  } else if (platform === 'linux') {
    const { LinuxInterface } = await import('../../portal/interface/linux.ts');
    link = new LinuxInterface(name, exec);
  } else {
    throw usage(
      '--portal-interface works on Linux and Windows only; give the host the addresses yourself',
    );
  }
  const { AddressKeeper } = await import('../../portal/interface/keeper.ts');
  return new AddressKeeper({ link, removeOnClose, clock: systemClock, random: Math.random });
}
