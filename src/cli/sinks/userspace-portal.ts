import type { Log } from '../../observe/log.ts';
import { systemExec, type Exec } from '../../portal/exec.ts';
import type { NftablesPortalOptions } from '../../portal/nftables/portal.ts';
import { reservationKey, PortAllocator } from '../../portal/proxy-ports.ts';
import type { Portal } from '../../portal/portal.ts';
import type { RuleCanary, RulePortalOptions } from '../../portal/rules/rule-portal.ts';
import type { PreviousListener } from '../../proxysocket/core/inherited.ts';
import type { PortRange } from '../../util/port-range.ts';
import { usage } from '../flags/read.ts';
import { ASSUMED, choosePortal, iptablesFamilies, iptablesTools } from './portal-choice.ts';
import type { Current } from './stale-rules.ts';
import type { UserspaceOptions } from './userspace-options.ts';
import type { InterfaceAddresses } from '../../portal/interface/addresses.ts';
import type { AddressKeeper } from '../../portal/interface/keeper.ts';
import { systemClock } from '../../util/clock.ts';

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
  const { bindAddress, nodePortAddresses, iptablesFlavor, portalTable: table } = options;
  const isDry = dry !== undefined;
  /** The port that each listener had in the previous process. */
  const previousPorts = new Map(
    previous.map(({ servicePort, address, traffic, port }) => [
      reservationKey(servicePort, address, traffic),
      port,
    ]),
  );
  const allocator = new PortAllocator(
    options.portRange,
    dry?.random ?? Math.random,
    previousPorts,
    isDry ? [] : await reservedPorts(options, log, exec),
  );
  const tools = iptablesTools(exec, iptablesFlavor, log, isDry);
  const host = { options, log, exec, tools, engine };
  const auto = async () => (isDry ? ASSUMED : choosePortal(host));
  const kind = options.portal === 'auto' ? await auto() : options.portal;
  /** Removes stale rules of other portals with the same names; logs those of running processes. */
  const removeOtherRules = async (current: Current, signal: AbortSignal): Promise<void> => {
    const [{ removeStaleRules }, { waitForOtherWriters }] = await Promise.all([
      import('./stale-rules.ts'),
      import('../../portal/rules/other-writers.ts'),
    ]);
    const check = () => removeStaleRules(current, options, log, exec);
    await waitForOtherWriters({ portal: current.kind, check, signal });
  };
  const rules: RulePortalOptions = {
    allocator,
    bindAddress,
    nodePortAddresses,
    removeOnClose: options.cleanupOnExit,
    exec,
  };
  if (kind === 'nftables' || kind === 'transparent') {
    const { NftablesPortal } = await import('../../portal/nftables/portal.ts');
    const watch =
      kind === 'transparent' && !isDry
        ? (await import('./transparent-choice.ts')).watchSettings(log)
        : undefined;
    const afterStart = async (signal: AbortSignal): Promise<void> => {
      await Promise.all([watch?.(signal), removeOtherRules({ kind }, signal)]);
    };
    const transparent = kind === 'nftables' ? undefined : await transparentParts(options, isDry);
    return new NftablesPortal({ ...rules, table, transparent, ...(dry ?? { afterStart }) });
  }
  if (kind === 'iptables') {
    const { IptablesPortal } = await import('../../portal/iptables/portal.ts');
    const families = isDry ? undefined : await iptablesFamilies(host);
    const afterStart = async (signal: AbortSignal): Promise<void> =>
      removeOtherRules({ kind, flavor: (await tools()).flavor }, signal);
    return new IptablesPortal({
      ...rules,
      prefix: options.portalChainPrefix,
      tools,
      ...(families !== undefined && { families }),
      ...(dry ?? { afterStart }),
    });
  }
  if (kind === 'none') {
    const { NonePortal } = await import('../../portal/address.ts');
    return new NonePortal({ bindAddress, allocator });
  }
  if (kind === 'portproxy' && system.platform !== 'win32') {
    throw usage('--portal portproxy is for Windows only');
  }
  const keeper = await createKeeper(options, log, exec, system);
  const addresses = { nodePortAddresses, ...(keeper !== undefined && { keeper }) };
  if (kind === 'address') {
    const { AddressPortal } = await import('../../portal/address.ts');
    return new AddressPortal(addresses);
  }
  const [{ PortProxyPortal }, { RuleStore }, { ruleLedger }] = await Promise.all([
    import('../../portal/windows/portproxy.ts'),
    import('../../portal/windows/portproxy.ts'),
    import('../../portal/windows/ledger.ts'),
  ]);
  log.info('netsh portproxy redirects TCP; UDP listens on the service addresses themselves');
  const store = new RuleStore(exec, ruleLedger(system.env));
  return new PortProxyPortal({
    addresses,
    store,
    allocator,
    bindAddress,
    removeOnClose: options.cleanupOnExit,
  });
}

async function transparentParts(
  { portalRoute: route }: UserspaceOptions,
  isDry: boolean,
): Promise<NftablesPortalOptions['transparent']> {
  const [{ kernelPortRange }, { transparentSocket }] = await Promise.all([
    import('../../proxysocket/core/kernel-port.ts'),
    import('../../proxysocket/linux/open-listener.ts'),
  ]);
  const kernelPorts = isDry ? undefined : kernelPortRange();
  return {
    route: { ...route, ...(kernelPorts !== undefined && { kernelPorts }) },
    socket: transparentSocket,
  };
}

/** Reserved ports within `--port-range`, logged once: Windows keeps some for itself. */
async function reservedPorts(
  { portRange }: UserspaceOptions,
  log: Log,
  exec: Exec,
): Promise<readonly PortRange[]> {
  if (process.platform !== 'win32' || portRange === undefined) return [];
  const { excludedPorts } = await import('../../portal/windows/netsh.ts');
  return excludedPorts(exec, portRange, log);
}

type KeeperOptions = Pick<UserspaceOptions, 'portalInterface' | 'cleanupOnExit'>;

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
      await import('../../portal/windows/addresses.ts');
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
