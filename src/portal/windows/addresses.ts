import { isIP } from 'node:net';
import { networkInterfaces, uptime } from 'node:os';
import { KpngError } from '../../errors.ts';
import { systemClock, type Clock } from '../../util/clock.ts';
import { familyOf } from '../../util/family.ts';
import { hostAddresses, type HostAddress } from '../../util/host-addresses.ts';
import { systemExec, type Exec } from '../exec.ts';
import {
  canonicalAddress,
  type ChangeOutcome,
  hostHas,
  type HostListing,
  type InterfaceAddresses,
  type Verb,
} from '../interface/addresses.ts';
import {
  changeArgs,
  MAX_OUTPUT,
  PROBES_AT_ONCE,
  readConnections,
  runAll,
  USABLE_FIRST_WAIT_MS,
  USABLE_MAX_WAIT_MS,
  USABLE_TIMEOUT_MS,
} from './netsh.ts';
import { AddressLedger, type Environment, ledgerPath } from './ledger.ts';

export interface WindowsInterfaceOptions {
  /** Name of the interface, such as `vEthernet (HNS Internal NIC)`. It is never created. */
  readonly name: string;
  readonly ledger: AddressLedger;
  readonly exec?: Exec;
  readonly clock?: Clock;
  /** Whether a socket can currently be bound to an address. */
  readonly has?: (address: string) => Promise<boolean>;
  readonly host?: () => readonly HostAddress[];
}

/**
 * Addresses of a Windows interface, through netsh.
 *
 * Several changes are one script. Binding sockets shows which addresses there are, as netsh prints in the system's
 * language. After a failure, the missing changes are made one by one to find out why. Addresses are `store=active`: a
 * boot removes them.
 */
export class WindowsInterface implements InterfaceAddresses {
  readonly name: string;
  readonly has: (address: string) => Promise<boolean>;
  readonly #options: Required<WindowsInterfaceOptions>;

  constructor(options: WindowsInterfaceOptions) {
    const system = { exec: systemExec, clock: systemClock, has: hostHas, host: hostAddresses };
    this.#options = { ...system, ...options };
    this.name = options.name;
    this.has = this.#options.has;
  }

  async open(): Promise<HostListing> {
    // Others stay recorded: they return with the interface.
    const ours = new Set(await bindable(await this.#recorded(), this.has));
    const others = this.#options
      .host()
      .map(({ address, loopback }) => ({ address: canonicalAddress(address), loopback }))
      .filter(({ address }) => !ours.has(address));
    return { ours, others };
  }

  async change(verb: Verb, addresses: readonly string[]): Promise<ChangeOutcome> {
    const noted = this.#options.ledger.addresses;
    if (verb === 'delete') {
      const ours = addresses.filter((address) => noted.has(address));
      return { refused: await this.#remove(ours) };
    }
    const existing = await bindable(addresses, this.has);
    const there = new Set(existing);
    return { existing, refused: await this.#add(addresses.filter((each) => !there.has(each))) };
  }

  async inUse(addresses: readonly string[]): Promise<ReadonlySet<string>> {
    const connected = new Set<string>();
    for (const family of new Set(addresses.map(familyOf))) {
      const args = ['-n', '-p', family === 4 ? 'TCP' : 'TCPv6'];
      const command = { file: 'netstat', args, maxOutput: MAX_OUTPUT };
      // Without netstat, the connections end with their address.
      const printed = await this.#options.exec(command).catch(() => undefined);
      for (const address of readConnections(printed?.stdout ?? '')) connected.add(address);
    }
    return new Set(addresses.filter((address) => connected.has(address)));
  }

  async dispose(): Promise<void> {
    for (const error of (await this.#remove(await this.#recorded())).values()) throw error;
  }

  /** The addresses that we have added, as the file says, which may hold anything. */
  async #recorded(): Promise<string[]> {
    await this.#options.ledger.load();
    return [...this.#options.ledger.addresses].filter((address) => isIP(address) !== 0);
  }

  /** Resolves with the addresses that could not be added, and why. */
  async #add(addresses: readonly string[]): Promise<ReadonlyMap<string, KpngError>> {
    const noted = this.#options.ledger.addresses;
    await this.#options.ledger.add(addresses);
    const failed = await this.#carryOut('add', addresses);
    const done = addresses.filter((address) => !failed.has(address));
    const useless = await unusable(done, this.has, this.#options.clock);
    for (const address of useless) {
      const message =
        `${address} was added to the interface ${JSON.stringify(this.name)} and could not be used in time; ` +
        'another machine may have it, or the interface is down';
      failed.set(address, new KpngError('KPNG_LISTEN_ADDRESS_NOT_AVAILABLE', message));
    }
    // An unusable address must not stay: nothing would remove it later.
    if (useless.length > 0) await this.#carryOut('delete', useless);
    // One that was recorded before may be there, on an interface that is down.
    await this.#options.ledger.remove([...failed.keys()].filter((address) => !noted.has(address)));
    return failed;
  }

  async #remove(addresses: readonly string[]): Promise<ReadonlyMap<string, KpngError>> {
    const failed = await this.#carryOut('delete', addresses);
    await this.#options.ledger.remove(addresses.filter((address) => !failed.has(address)));
    return failed;
  }

  /** Adds or removes addresses. Resolves with the failed ones and the reasons. */
  async #carryOut(verb: Verb, addresses: readonly string[]): Promise<Map<string, KpngError>> {
    const commands = new Map(addresses.map((each) => [each, changeArgs(verb, each, this.name)]));
    const doing = verb === 'add' ? 'adding' : 'removing';
    const where = `on the interface ${JSON.stringify(this.name)}`;
    const all = `${addresses.length} addresses`;
    const textOf = (address = all): string => `${doing} ${address} ${where}`;
    const left = (): Promise<string[]> =>
      verb === 'add'
        ? unusable(addresses, this.has, this.#options.clock)
        : bindable(addresses, this.has);
    const failed = await runAll(this.#options.exec, commands, textOf, left);
    const [error] = failed.values();
    if (error === undefined) return failed;
    // A reason unrelated to a single address is reported once.
    if (error.code !== 'KPNG_PORTAL_FAILED' && failed.size === addresses.length) throw error;
    if (verb === 'delete') {
      // An address that another program removed is fine.
      const still = new Set(await left());
      for (const address of failed.keys()) if (!still.has(address)) failed.delete(address);
    }
    return failed;
  }
}

/** Those of the addresses that can be bound, in order. */
async function bindable(
  addresses: readonly string[],
  has: (address: string) => Promise<boolean>,
): Promise<string[]> {
  const found: string[] = [];
  for (let at = 0; at < addresses.length; at += PROBES_AT_ONCE) {
    const some = addresses.slice(at, at + PROBES_AT_ONCE);
    const answers = await Promise.all(some.map(has));
    found.push(...some.filter((_, index) => answers[index]));
  }
  return found;
}

/** Waits, within a limit, until all addresses can be bound (duplicate detection). Resolves with the others. */
async function unusable(
  addresses: readonly string[],
  has: (address: string) => Promise<boolean>,
  clock: Clock,
): Promise<string[]> {
  const end = clock.now() + USABLE_TIMEOUT_MS;
  let rest = addresses;
  for (let wait = USABLE_FIRST_WAIT_MS; ; wait = Math.min(wait * 2, USABLE_MAX_WAIT_MS)) {
    const usable = new Set(await bindable(rest, has));
    rest = rest.filter((address) => !usable.has(address));
    if (rest.length === 0 || clock.now() + wait > end) return [...rest];
    await new Promise<void>((resolve) => clock.setTimer(wait, resolve));
  }
}

/** The host interface created by the network of Windows containers; kube-proxy's choice. */
export const HNS_INTERFACE = 'vEthernet (HNS Internal NIC)';

/** The variable from which kube-proxy's winuserspace read the name. */
export const INTERFACE_VARIABLE = 'INTERFACE_TO_ADD_SERVICE_IP';

export interface NamedInterface {
  readonly name: string;
  readonly loopback: boolean;
}

/**
 * Chooses the interface for service addresses. Windows accepts packets only on the interface with the address, so one
 * that pods can reach is preferred, and loopback comes last. `interfaces`: those that are up.
 */
export function chooseInterface(
  flag: string,
  env: Environment,
  interfaces: readonly NamedInterface[],
): { readonly name: string; readonly reason: string } {
  const names = interfaces.map(({ name }) => name).sort();
  const candidates = [
    [flag, '--portal-interface names it'],
    [env[INTERFACE_VARIABLE], `${INTERFACE_VARIABLE} names it`],
    [names.find((name) => name === HNS_INTERFACE), 'it is the one of the host network service'],
    [
      names.find((name) => name.startsWith('vEthernet (')),
      `it is the first virtual interface of the host; there is no ${HNS_INTERFACE}`,
    ],
    [
      interfaces.find((each) => each.loopback)?.name,
      'there is no virtual interface; only programs of the host get there',
    ],
    [HNS_INTERFACE, 'it is the one that kube-proxy uses; no interface is up'],
  ] as const;
  const [name = '', reason] = candidates.find(([each = '']) => each !== '') ?? ['', ''];
  return { name, reason };
}

/** The interfaces of the host that are up, from Node. */
export function namedInterfaces(): NamedInterface[] {
  return Object.entries(networkInterfaces()).map(([name, list = []]) => ({
    name,
    loopback: list.some(({ internal }) => internal),
  }));
}

export function checkWindowsInterfaceName(name: string): void {
  // A quote would end the name on netsh's command line; the other characters are not allowed in names.
  if (/^[^"\\/:*?<>|\p{Cc}]{1,256}$/u.test(name)) return;
  throw new KpngError(
    'KPNG_USAGE',
    `${JSON.stringify(name)} cannot be the name of a network interface: up to 256 characters, and none of ` +
      String.raw`" \ / : * ? < > |`,
  );
}

/** Service addresses on an interface of this host. Throws KPNG_USAGE for an invalid name. */
export function windowsLink(name: string, env: Environment, exec?: Exec): InterfaceAddresses {
  checkWindowsInterfaceName(name);
  const ledger = new AddressLedger(ledgerPath(name, env), () => Date.now() - uptime() * 1000);
  return new WindowsInterface({ name, ledger, ...(exec !== undefined && { exec }) });
}
