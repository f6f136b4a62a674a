import type { Log } from '../../observe/log.ts';
import { systemExec, type Exec } from '../../portal/exec.ts';
import type { InterfaceAddresses } from '../../portal/interface/addresses.ts';
import type { AddressKeeper } from '../../portal/interface/keeper.ts';
import type { Tools } from '../../portal/iptables/tools.ts';
import type { Portal } from '../../portal/portal.ts';
import { reservationKey, PortAllocator } from '../../portal/proxy-ports.ts';
import type { RuleCanary } from '../../portal/rules/backend.ts';
import type { PreviousListener } from '../../proxysocket/core/inherited.ts';
import { systemClock } from '../../util/clock.ts';
import { usage } from '../flags/read.ts';
import type { UserspaceOptions } from './userspace-options.ts';

/** Replaced in a dry run: values that differ from run to run, and parts that open sockets. */
export interface PortalParts {
  readonly owner: string;
  readonly random: () => number;
  readonly canary: () => RuleCanary;
}

export interface PortalContext {
  /** Runs the programs of the host. */
  readonly exec?: Exec;
  /** Nothing is probed; `auto` means nftables on Linux. */
  readonly dry?: PortalParts;
  /** Of the process that this one takes over from. */
  readonly previous?: readonly PreviousListener[];
  /** Default: `node`, with which `auto` does not try transparent sockets. */
  readonly engine?: 'node' | 'linux';
  /** Default: this one. */
  readonly system?: KeeperHost;
}

/**
 * Creates the portal of `--portal`, and loads no other. Throws KPNG_USAGE for a `--bind-address` that rules cannot
 * redirect to, and for `portproxy` on systems other than Windows.
 */
export async function createPortal(
  options: UserspaceOptions,
  log: Log,
  { exec = systemExec, dry, previous = [], engine = 'node', system = process }: PortalContext = {},
): Promise<Portal> {
  const { bindAddress, nodePortAddresses, portRange, cleanupOnExit: removeOnClose } = options;
  /** The port that each listener had in the previous process. */
  const previousPorts = new Map(
    previous.map(({ servicePort, address, traffic, port }) => [
      reservationKey(servicePort, address, traffic),
      port,
    ]),
  );
  const isReserving = process.platform === 'win32' && portRange !== undefined && dry === undefined;
  const allocator = new PortAllocator(
    portRange,
    dry?.random ?? Math.random,
    previousPorts,
    // Windows keeps some ports for itself.
    isReserving
      ? await (await import('../../portal/windows/netsh.ts')).excludedPorts(exec, portRange, log)
      : [],
  );
  const tools = iptablesTools(exec, options.iptablesFlavor, log, dry !== undefined);
  const host = { options, log, exec, tools, engine, dry };
  const rulePortals = () => import('./rule-portals.ts');
  let kind: Portal['kind'];
  if (options.portal !== 'auto') kind = options.portal;
  else if (dry === undefined) kind = await (await rulePortals()).choosePortal(host);
  else kind = process.platform === 'linux' ? 'nftables' : 'address';

  if (kind === 'nftables' || kind === 'transparent' || kind === 'iptables') {
    const shared = { allocator, bindAddress, nodePortAddresses, removeOnClose, exec };
    return (await rulePortals()).createRulePortal(kind, host, shared);
  }
  if (kind === 'none') {
    const { NonePortal } = await import('../../portal/address.ts');
    return new NonePortal(allocator, bindAddress);
  }
  if (kind === 'portproxy' && system.platform !== 'win32') {
    throw usage('--portal portproxy is for Windows only');
  }
  const keeper = await createKeeper(options, log, exec, system);
  const addresses = { nodePortAddresses, ...(keeper && { keeper }) };
  if (kind === 'address') {
    const { AddressPortal } = await import('../../portal/address.ts');
    return new AddressPortal(addresses);
  }
  const { PortProxyPortal, RuleStore } = await import('../../portal/windows/portproxy.ts');
  const { ruleLedger } = await import('../../portal/windows/ledger.ts');
  log.info('netsh portproxy redirects TCP; UDP listens on the service addresses themselves');
  const store = new RuleStore(exec, ruleLedger(system.env));
  return new PortProxyPortal({ addresses, store, allocator, bindAddress, removeOnClose });
}

/** Finds the iptables programs, once. A call after a failure searches again. A dry run assumes what others have. */
export function iptablesTools(
  exec: Exec,
  asked: UserspaceOptions['iptablesFlavor'],
  log: Log,
  isDry: boolean,
): () => Promise<Tools> {
  let found: Tools | undefined;
  if (isDry) {
    const name = asked === 'auto' ? 'iptables' : `iptables-${asked}`;
    found = { name, flavor: asked === 'auto' ? 'nft' : asked, version: '1.8.9' };
  }
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

export interface KeeperHost {
  readonly platform: NodeJS.Platform;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/**
 * Creates the keeper of the service addresses on `--portal-interface`; undefined if the flag is empty, or absent on
 * systems other than Windows. Throws KPNG_USAGE for an invalid name, and on systems that do not support it.
 */
export async function createKeeper(
  {
    portalInterface: name,
    cleanupOnExit: removeOnClose,
  }: Pick<UserspaceOptions, 'portalInterface' | 'cleanupOnExit'>,
  log: Log,
  exec?: Exec,
  { platform, env }: KeeperHost = process,
): Promise<AddressKeeper | undefined> {
  if (name === '' || (name === undefined && platform !== 'win32')) return undefined;
  let link: InterfaceAddresses;
  if (platform === 'win32') {
    const { chooseInterface, windowsLink } = await import('../../portal/windows/addresses.ts');
    const chosen = chooseInterface(name ?? '', env);
    const { name: interfaceName, reason } = chosen;
    log.info('Chose the interface for service addresses', { interface: interfaceName, reason });
    link = windowsLink(interfaceName, env, exec);
  } else if (platform === 'linux') {
    const { LinuxInterface } = await import('../../portal/interface/linux.ts');
    link = new LinuxInterface(name ?? '', exec);
  } else {
    throw usage(
      '--portal-interface works on Linux and Windows only; give the host the addresses yourself',
    );
  }
  const { AddressKeeper } = await import('../../portal/interface/keeper.ts');
  return new AddressKeeper({ link, removeOnClose, clock: systemClock, random: Math.random });
}
