import { KpngError } from '../../errors.ts';
import type { Log } from '../../observe/log.ts';
import type { Exec } from '../../portal/exec.ts';
import type { PortAllocator } from '../../portal/port-allocator.ts';
import type { Portal } from '../../portal/portal.ts';
import { createKeeper, type KeeperHost } from './portal-interface.ts';
import type { UserspaceOptions } from './to-userspace.ts';

/** Makes the portal `portproxy`. Throws KPNG_USAGE on systems other than Windows. */
export async function createPortProxy(
  options: UserspaceOptions,
  allocator: PortAllocator,
  log: Log,
  exec: Exec,
  host: KeeperHost = process,
): Promise<Portal> {
  if (host.platform !== 'win32') {
    throw new KpngError('KPNG_USAGE', '--portal portproxy is for Windows only');
  }
  const [{ AddressPortal }, { PortProxyPortal }, { RuleStore }, { ruleLedger }] = await Promise.all(
    [
      import('../../portal/address.ts'),
      import('../../portal/windows/portproxy.ts'),
      import('../../portal/windows/portproxy-store.ts'),
      import('../../portal/windows/keeper-link.ts'),
    ],
  );
  const keeper = await createKeeper(options, log, exec, host);
  const { nodePortAddresses, bindAddress, cleanupOnExit: removeOnClose } = options;
  log.info('netsh portproxy leads TCP; UDP listens on the service addresses themselves');
  return new PortProxyPortal({
    places: new AddressPortal({ nodePortAddresses, ...(keeper !== undefined && { keeper }) }),
    store: new RuleStore(exec, ruleLedger(host.env)),
    allocator,
    bindAddress,
    removeOnClose,
  });
}
