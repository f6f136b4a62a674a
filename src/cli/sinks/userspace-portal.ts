import { KpngError } from '../../errors.ts';
import type { Log } from '../../observe/log.ts';
import type { Exec } from '../../portal/exec.ts';
import type { Portal } from '../../portal/portal.ts';
import type { RuleCanary } from '../../portal/rules/rule-portal.ts';
import { PortAllocator } from '../../portal/port-allocator.ts';
import { createKeeper } from './portal-interface.ts';
import type { UserspaceOptions } from './to-userspace.ts';

/** What a dry run puts in place of what differs from run to run, or opens sockets. */
export interface PortalParts {
  readonly owner: string;
  readonly random: () => number;
  readonly canary: () => RuleCanary<never>;
}

/**
 * Makes the portal that `--portal` asks for, and loads no other. `exec` runs the programs of the host.
 * Throws KPNG_USAGE for a `--bind-address` that rules cannot lead to. With `dry` nothing is tried, and
 * `auto` stands for what it would be at best.
 */
export async function createPortal(
  options: UserspaceOptions,
  log: Log,
  exec?: Exec,
  dry?: PortalParts,
): Promise<Portal> {
  const { bindAddress, nodePortAddresses } = options;
  const allocator = new PortAllocator(options.portRange, dry?.random ?? Math.random);
  const auto = (): Promise<'nftables' | 'address'> =>
    dry === undefined ? choose(options, log, exec) : Promise.resolve(BEST);
  const kind = options.portal === 'auto' ? await auto() : options.portal;
  if (kind === 'nftables') {
    const { NftablesPortal } = await import('../../portal/nftables/portal.ts');
    return new NftablesPortal({
      allocator,
      bindAddress,
      nodePortAddresses,
      table: options.portalTable,
      removeOnClose: options.cleanupOnExit,
      ...(exec !== undefined && { exec }),
      ...dry,
    });
  }
  if (kind === 'address') {
    const { AddressPortal } = await import('../../portal/address.ts');
    const keeper = await createKeeper(options, exec);
    return new AddressPortal({ nodePortAddresses, ...(keeper !== undefined && { keeper }) });
  }
  const { NonePortal } = await import('../../portal/none.ts');
  return new NonePortal({ bindAddress, allocator });
}

/** What `--portal auto` comes to where everything works. */
const BEST = process.platform === 'linux' ? 'nftables' : 'address';

/** What `--portal auto` comes to here, which is decided once. One log line says why. */
async function choose(
  { bindAddress }: UserspaceOptions,
  log: Log,
  exec: Exec | undefined,
): Promise<'nftables' | 'address'> {
  const problem = await whyNotNftables(bindAddress, exec);
  if (problem === undefined) {
    const reason = 'nft and the kernel take the rules, and the process may write them';
    log.info('Chose --portal nftables', { reason });
    return 'nftables';
  }
  log.info('Chose --portal address', { reason: problem.message, code: problem.code });
  return 'address';
}

async function whyNotNftables(
  bindAddress: string,
  exec: Exec | undefined,
): Promise<KpngError | undefined> {
  const [{ systemExec }, { bindAddresses, hostFamilies }, { nftablesProblem }, host] =
    await Promise.all([
      import('../../portal/exec.ts'),
      import('../../portal/rules/host.ts'),
      import('../../portal/nftables/tool.ts'),
      import('../../util/host-addresses.ts'),
    ]);
  const families = hostFamilies(host.hostAddresses());
  try {
    bindAddresses(bindAddress, families);
  } catch (error) {
    if (error instanceof KpngError) return error;
    throw error;
  }
  return nftablesProblem(exec ?? systemExec, families);
}
