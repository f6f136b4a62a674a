import { networkInterfaces, uptime } from 'node:os';
import { KpngError } from '../../errors.ts';
import { systemClock, type Clock } from '../../util/clock.ts';
import { familyOf, type Family } from '../../util/family.ts';
import { hostAddresses, type HostAddress } from '../../util/host-addresses.ts';
import { systemExec, type Exec } from '../exec.ts';
import {
  canonicalAddress,
  type ChangeOutcome,
  hostHas,
  type HostListing,
  type InterfaceAddresses,
} from '../interface/addresses.ts';
import {
  addArgs,
  deleteArgs,
  listAddresses,
  MAX_OUTPUT,
  MAX_SINGLE_FAILURES,
  PROBES_AT_ONCE,
  readConnections,
  runNetsh,
  runScript,
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
 * Several changes are one script. Binding sockets shows whether it worked, as netsh's messages are localized. After a
 * failure the interface is listed, and the missing changes are made one by one to find out why. Addresses are
 * `store=active`: a boot removes them.
 */
export class WindowsInterface implements InterfaceAddresses {
  readonly name: string;
  readonly has: (address: string) => Promise<boolean>;
  readonly #ledger: AddressLedger;
  readonly #exec: Exec;
  readonly #clock: Clock;
  readonly #host: () => readonly HostAddress[];

  constructor(options: WindowsInterfaceOptions) {
    this.name = options.name;
    this.has = options.has ?? hostHas;
    this.#ledger = options.ledger;
    this.#exec = options.exec ?? systemExec;
    this.#clock = options.clock ?? systemClock;
    this.#host = options.host ?? hostAddresses;
  }

  async open(): Promise<HostListing> {
    await this.#ledger.load();
    const noted = this.#ledger.addresses;
    const families = new Set([4, ...[...noted].map(familyOf)] as const);
    const present = await this.#list(families);
    const ours = new Set([...noted].filter((address) => present.has(address)));
    await this.#ledger.keep(ours);
    const others = this.#host()
      .map(({ address, loopback }) => ({ address: canonicalAddress(address), loopback }))
      .filter(({ address }) => !ours.has(address));
    return { ours, others };
  }

  async change(add: readonly string[], remove: readonly string[]): Promise<ChangeOutcome> {
    const existing = await bindable(add, this.has);
    const there = new Set(existing);
    const fresh = add.filter((address) => !there.has(address));
    const noted = this.#ledger.addresses;
    const kept = await this.#remove(remove.filter((address) => noted.has(address)));
    return { existing, refused: new Map([...kept, ...(await this.#add(fresh))]) };
  }

  async inUse(addresses: readonly string[]): Promise<ReadonlySet<string>> {
    const connected = new Set<string>();
    for (const family of new Set(addresses.map(familyOf))) {
      const args = ['-n', '-p', family === 4 ? 'TCP' : 'TCPv6'];
      const command = { file: 'netstat', args, maxOutput: MAX_OUTPUT };
      // Without netstat, the connections end with their address.
      const printed = await this.#exec(command).catch(() => undefined);
      for (const address of readConnections(printed?.stdout ?? '')) connected.add(address);
    }
    return new Set(addresses.filter((address) => connected.has(address)));
  }

  async dispose(): Promise<void> {
    const { ours } = await this.open();
    for (const error of (await this.#remove([...ours])).values()) throw error;
  }

  /** Resolves with the addresses that could not be added, and why. */
  async #add(addresses: readonly string[]): Promise<ReadonlyMap<string, KpngError>> {
    if (addresses.length === 0) return new Map();
    await this.#ledger.add(addresses);
    const failed = await this.#carryOut('add', addresses);
    const done = addresses.filter((address) => !failed.has(address));
    const useless = await unusable(done, this.has, this.#clock);
    for (const address of useless) {
      const message =
        `${address} was added to the interface ${JSON.stringify(this.name)} and could not be used in time; ` +
        'another machine may have it, or the interface is down';
      failed.set(address, new KpngError('KPNG_LISTEN_ADDRESS_NOT_AVAILABLE', message));
    }
    // An unusable address must not stay: nothing would remove it later.
    if (useless.length > 0) await this.#carryOut('delete', useless);
    await this.#ledger.remove([...failed.keys()]);
    return failed;
  }

  async #remove(addresses: readonly string[]): Promise<ReadonlyMap<string, KpngError>> {
    if (addresses.length === 0) return new Map();
    const failed = await this.#carryOut('delete', addresses);
    await this.#ledger.remove(addresses.filter((address) => !failed.has(address)));
    return failed;
  }

  /** Adds or removes addresses. Resolves with the failed ones and the reasons. */
  async #carryOut(
    verb: 'add' | 'delete',
    addresses: readonly string[],
  ): Promise<Map<string, KpngError>> {
    const argsOf = verb === 'add' ? addArgs : deleteArgs;
    const doing = verb === 'add' ? 'adding' : 'removing';
    const where = `the interface ${JSON.stringify(this.name)}`;
    if (addresses.length > 1) {
      const commands = addresses.map((address) => argsOf(address, this.name));
      const what = `${doing} ${addresses.length} addresses on ${where}`;
      if (await runScript(this.#exec, commands, what)) return new Map();
    }
    const failed = new Map<string, KpngError>();
    const left = addresses.length === 1 ? addresses : await this.#notDone(verb, addresses);
    let last: KpngError | undefined;
    for (const address of left) {
      if (last !== undefined && failed.size >= MAX_SINGLE_FAILURES) {
        failed.set(address, last);
        continue;
      }
      try {
        const what = `${doing} ${address} on ${where}`;
        await runNetsh(this.#exec, argsOf(address, this.name), what);
      } catch (error) {
        if (!(error instanceof KpngError)) throw error;
        last = error;
        failed.set(address, error);
      }
    }
    if (last === undefined || failed.size === 0) return failed;
    // A reason unrelated to a single address is reported once.
    if (last.code !== 'KPNG_PORTAL_FAILED' && failed.size === addresses.length) throw last;
    if (verb === 'delete') {
      // An address that another program removed is fine.
      const still = new Set(await this.#notDone(verb, [...failed.keys()]));
      for (const address of failed.keys()) if (!still.has(address)) failed.delete(address);
    }
    return failed;
  }

  /** Those of the addresses that still have to be added or removed. */
  async #notDone(verb: 'add' | 'delete', addresses: readonly string[]): Promise<string[]> {
    const present = await this.#list(new Set(addresses.map(familyOf)));
    return addresses.filter((address) => present.has(address) === (verb === 'delete'));
  }

  async #list(families: ReadonlySet<Family>): Promise<ReadonlySet<string>> {
    const present = new Set<string>();
    for (const family of families) {
      const listed = await listAddresses(this.#exec, this.name, family);
      for (const address of listed) present.add(address);
    }
    return present;
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
