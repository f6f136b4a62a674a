import { KpngError } from '../../errors.ts';
import type { Log } from '../../observe/log.ts';
import type { Exec } from '../../portal/exec.ts';
import type { InterfaceAddresses } from '../../portal/interface/addresses.ts';
import type { AddressKeeper } from '../../portal/interface/keeper.ts';
import { systemClock } from '../../util/clock.ts';
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
  { portalInterface, cleanupOnExit: removeOnClose }: KeeperOptions,
  log: Log,
  exec?: Exec,
  host: KeeperHost = process,
): Promise<AddressKeeper | undefined> {
  if (portalInterface === '') return undefined;
  const link = await linkOf(portalInterface, log, exec, host);
  if (link === undefined) return undefined;
  const { AddressKeeper } = await import('../../portal/interface/keeper.ts');
  return new AddressKeeper({ link, removeOnClose, clock: systemClock, random: Math.random });
}

async function linkOf(
  name: string | undefined,
  log: Log,
  exec: Exec | undefined,
  { platform, env }: KeeperHost,
): Promise<InterfaceAddresses | undefined> {
  if (platform === 'win32') {
    const { chooseInterface, namedInterfaces, windowsLink } =
      await import('../../portal/windows/keeper-link.ts');
    const chosen = chooseInterface(name ?? '', env, namedInterfaces());
    log.info('Chose the interface for service addresses', {
      interface: chosen.name,
      reason: chosen.reason,
    });
    return windowsLink(chosen.name, env, exec);
  }
  if (name === undefined) return undefined;
  if (platform !== 'linux') {
    throw new KpngError(
      'KPNG_USAGE',
      '--portal-interface works on Linux and Windows only; give the host the addresses yourself',
    );
  }
  const { LinuxInterface } = await import('../../portal/interface/linux.ts');
  return new LinuxInterface(name, exec);
}
