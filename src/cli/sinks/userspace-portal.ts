import type { Log } from '../../observe/log.ts';
import { systemExec, type Exec } from '../../portal/exec.ts';
import type { AddressKeeper } from '../../portal/interface/keeper.ts';
import type { Tools } from '../../portal/iptables/tools.ts';
import type { Portal } from '../../portal/portal.ts';
import { reservationKey, PortAllocator } from '../../portal/proxy-ports.ts';
import type { PreviousListener } from '../../handover/protocol.ts';
import { systemClock } from '../../util/clock.ts';
import { usage } from '../flags/table.ts';
import type { PortalHost } from './rule-portals.ts';
import type { UserspaceOptions } from './userspace-options.ts';

/** Default: no dry run; this system; the engine `node`, with which `auto` does not try transparent sockets. */
interface PortalContext extends Partial<Pick<PortalHost, 'exec' | 'engine' | 'dry'>> {
  /** Of the process that this one takes over from. */
  readonly previous?: readonly PreviousListener[];
  readonly system?: System;
}

type System = Pick<NodeJS.Process, 'env' | 'platform'>;

/**
 * Creates the portal of `--portal`, and loads no other. Throws KPNG_USAGE for a `--bind-address` that rules cannot
 * redirect to, and for `portproxy` on systems other than Windows.
 */
export async function createPortal(
  options: UserspaceOptions,
  log: Log,
  { exec = systemExec, dry, previous = [], engine = 'node', system = process }: PortalContext = {},
): Promise<Portal> {
  const { bindAddress, nodePortAddresses, portRange } = options;
  /** The port that each listener had in the previous process. */
  const previousPorts = new Map(
    previous.map(({ servicePort, address, traffic, port }) => [
      reservationKey(servicePort, address, traffic),
      port,
    ]),
  );
  const isReserving = process.platform === 'win32' && portRange !== undefined && dry === undefined;
  // Windows keeps some ports for itself.
  const unusable = isReserving
    ? await (await import('../../portal/windows/netsh.ts')).excludedPorts(exec, portRange, log)
    : [];
  const random = dry?.random ?? Math.random;
  const allocator = new PortAllocator(portRange, random, previousPorts, unusable);
  const tools = iptablesTools(exec, options.iptablesFlavor, log, dry !== undefined);
  const host = { options, log, exec, tools, engine, dry, allocator };
  const rulePortals = () => import('./rule-portals.ts');
  let kind: Portal['kind'];
  if (options.portal !== 'auto') kind = options.portal;
  else if (dry === undefined) kind = await (await rulePortals()).choosePortal(host);
  else kind = process.platform === 'linux' ? 'nftables' : 'address';

  if (kind === 'nftables' || kind === 'transparent' || kind === 'iptables') {
    return (await rulePortals()).createRulePortal(kind, host);
  }
  const { AddressPortal, NonePortal } = await import('../../portal/address.ts');
  if (kind === 'none') return new NonePortal(allocator, bindAddress);
  if (kind === 'portproxy' && system.platform !== 'win32') {
    throw usage('--portal portproxy is for Windows only');
  }
  const keeper = await createKeeper(options, log, exec, system);
  const addresses = { nodePortAddresses, ...(keeper && { keeper }) };
  if (kind === 'address') return new AddressPortal(addresses);
  const { PortProxyPortal, RuleStore } = await import('../../portal/windows/portproxy.ts');
  const { ledgerFor } = await import('../../portal/windows/ledger.ts');
  log.info('netsh portproxy redirects TCP; UDP listens on the service addresses themselves');
  const store = new RuleStore(exec, ledgerFor(system.env));
  return new PortProxyPortal({ addresses, store, allocator, bindAddress });
}

/** Finds the iptables programs, once. A call after a failure searches again. A dry run assumes what others have. */
export function iptablesTools(
  exec: Exec,
  asked: UserspaceOptions['iptablesFlavor'],
  log: Log,
  isDry: boolean,
): () => Promise<Tools> {
  const [name, assumed] =
    asked === 'auto' ? ['iptables', 'nft' as const] : [`iptables-${asked}`, asked];
  let found: Tools | undefined = isDry ? { name, flavor: assumed, version: '1.8.9' } : undefined;
  return async () => {
    if (found !== undefined) return found;
    const { findTools } = await import('../../portal/iptables/tools.ts');
    const chosen = await findTools(exec, asked);
    const { flavor, version, name: program, reason } = chosen;
    log.info('Found iptables', { flavor, version, program, reason });
    found = chosen;
    return found;
  };
}

/**
 * Creates the keeper of the service addresses on `--portal-interface`; undefined if the flag is empty, or absent on
 * systems other than Windows. Throws KPNG_USAGE for an invalid name, and on systems that do not support it.
 */
export async function createKeeper(
  options: Pick<UserspaceOptions, 'portalInterface'>,
  log: Log,
  exec: Exec,
  { platform, env }: System,
): Promise<AddressKeeper | undefined> {
  const { portalInterface = platform === 'win32' ? undefined : '' } = options;
  if (portalInterface === '') return undefined;
  const link = async () => {
    if (platform === 'win32') {
      const { chooseInterface, windowsLink } = await import('../../portal/windows/addresses.ts');
      const { name, reason } = chooseInterface(portalInterface ?? '', env);
      log.info('Chose the interface for service addresses', { interface: name, reason });
      return windowsLink(name, env, exec);
    }
    if (platform !== 'linux') {
      throw usage(
        '--portal-interface works on Linux and Windows only; give the host the addresses yourself',
      );
    }
    const { LinuxInterface } = await import('../../portal/interface/linux.ts');
    return new LinuxInterface(portalInterface ?? '', exec);
  };
  const { AddressKeeper } = await import('../../portal/interface/keeper.ts');
  return new AddressKeeper(await link(), systemClock, Math.random);
}
