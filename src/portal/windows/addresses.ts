import { isIP } from 'node:net';
import { networkInterfaces } from 'node:os';
import { KpngError } from '../../errors.ts';
import { systemClock } from '../../util/clock.ts';
import { familyOf } from '../../util/family.ts';
import { hostAddresses } from '../../util/host-addresses.ts';
import { MAX_ADDRESS_LIST } from '../bounds.ts';
import { systemExec, type Exec } from '../exec.ts';
import {
  type ChangeOutcome,
  hostHas,
  type HostListing,
  type InterfaceAddresses,
  type Verb,
} from '../interface/addresses.ts';
import { changeArgs, readConnections, runAll } from './netsh.ts';
import { type AddressLedger, ledgerFor } from './ledger.ts';

/** Time limit until a socket can be bound to a new address. Milliseconds. */
export const USABLE_TIMEOUT_MS = 5000;

/** First and maximum delay between two attempts to bind. */
export const USABLE_FIRST_WAIT_MS = 10;
export const USABLE_MAX_WAIT_MS = 250;

/** Replaced in tests. `has`: whether a socket can currently be bound to an address. */
const SYSTEM = { exec: systemExec, clock: systemClock, has: hostHas, host: hostAddresses };

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
  readonly #ledger: AddressLedger;
  readonly #system: typeof SYSTEM;

  /** `name`: such as `vEthernet (HNS Internal NIC)`. It is never created. Throws KPNG_USAGE for an invalid name. */
  constructor(name: string, ledger: AddressLedger, system: Partial<typeof SYSTEM> = {}) {
    // A quote would end the name on netsh's command line; the other characters are not allowed in names.
    if (!/^[^"\\/:*?<>|\p{Cc}]{1,256}$/u.test(name)) {
      throw new KpngError(
        'KPNG_USAGE',
        `${JSON.stringify(name)} cannot be the name of a network interface: up to 256 characters, and none of ` +
          String.raw`" \ / : * ? < > |`,
      );
    }
    this.name = name;
    this.#ledger = ledger;
    this.#system = { ...SYSTEM, ...system };
    this.has = this.#system.has;
  }

  async open(): Promise<HostListing> {
    // Others stay recorded: they return with the interface.
    const ours = new Set(await this.#bindable(await this.#recorded()));
    const others = this.#system.host().filter(({ address }) => !ours.has(address));
    return { ours, others };
  }

  async change(verb: Verb, addresses: readonly string[]): Promise<ChangeOutcome> {
    if (verb === 'delete') {
      const ours = addresses.filter((address) => this.#ledger.addresses.has(address));
      return { refused: await this.#remove(ours) };
    }
    const existing = await this.#bindable(addresses);
    const there = new Set(existing);
    return { existing, refused: await this.#add(addresses.filter((each) => !there.has(each))) };
  }

  async inUse(addresses: readonly string[]): Promise<ReadonlySet<string>> {
    const connected: string[] = [];
    for (const family of new Set(addresses.map(familyOf))) {
      const args = ['-n', '-p', family === 4 ? 'TCP' : 'TCPv6'];
      const command = { file: 'netstat', args, maxOutput: MAX_ADDRESS_LIST };
      // Without netstat, the connections end with their address.
      const printed = await this.#system.exec(command).catch(() => undefined);
      connected.push(...readConnections(printed?.stdout ?? ''));
    }
    return new Set(connected);
  }

  async dispose(): Promise<void> {
    for (const error of (await this.#remove(await this.#recorded())).values()) throw error;
  }

  /** The addresses that we have added, as the file says, which may hold anything. */
  async #recorded(): Promise<string[]> {
    await this.#ledger.load();
    return [...this.#ledger.addresses].filter((address) => isIP(address) !== 0);
  }

  /** Resolves with the addresses that could not be added, and why. */
  async #add(addresses: readonly string[]): Promise<ReadonlyMap<string, KpngError>> {
    const before = this.#ledger.addresses;
    await this.#ledger.keep([...before, ...addresses]);
    const failed = await this.#carryOut('add', addresses);
    const useless = await this.#unusable(addresses.filter((address) => !failed.has(address)));
    for (const address of useless) {
      const message =
        `${address} was added to the interface ${JSON.stringify(this.name)} and could not be used in time; ` +
        'another machine may have it, or the interface is down';
      failed.set(address, new KpngError('KPNG_LISTEN_ADDRESS_NOT_AVAILABLE', message));
    }
    // An unusable address must not stay: nothing would remove it later.
    if (useless.length > 0) await this.#carryOut('delete', useless);
    // One that was recorded before may be there, on an interface that is down.
    await this.#ledger.keep([...before, ...addresses.filter((address) => !failed.has(address))]);
    return failed;
  }

  async #remove(addresses: readonly string[]): Promise<ReadonlyMap<string, KpngError>> {
    const failed = await this.#carryOut('delete', addresses);
    const removed = new Set(addresses.filter((address) => !failed.has(address)));
    await this.#ledger.keep([...this.#ledger.addresses].filter((address) => !removed.has(address)));
    return failed;
  }

  /** Adds or removes addresses. Resolves with the failed ones and the reasons. */
  #carryOut(verb: Verb, addresses: readonly string[]): Promise<Map<string, KpngError>> {
    const commands = new Map(addresses.map((each) => [each, changeArgs(verb, each, this.name)]));
    const isAdded = verb === 'add';
    const where = `on the interface ${JSON.stringify(this.name)}`;
    const textOf = (address = `${addresses.length} addresses`) =>
      `${isAdded ? 'adding' : 'removing'} ${address} ${where}`;
    const left = () => (isAdded ? this.#unusable(addresses) : this.#bindable(addresses));
    // An address that another program removed is fine.
    const isFine = async (address: string) => !isAdded && !(await this.has(address));
    return runAll(this.#system.exec, commands, textOf, left, isFine);
  }

  /** Those of the addresses that can be bound, in order. */
  async #bindable(addresses: readonly string[]): Promise<string[]> {
    const found: string[] = [];
    for (const address of addresses) if (await this.has(address)) found.push(address);
    return found;
  }

  /** Waits, within a limit, until all addresses can be bound (duplicate detection). Resolves with the others. */
  async #unusable(addresses: readonly string[]): Promise<string[]> {
    const end = this.#system.clock.now() + USABLE_TIMEOUT_MS;
    let rest = [...addresses];
    for (let wait = USABLE_FIRST_WAIT_MS; ; wait = Math.min(wait * 2, USABLE_MAX_WAIT_MS)) {
      const usable = new Set(await this.#bindable(rest));
      rest = rest.filter((address) => !usable.has(address));
      if (rest.length === 0 || this.#system.clock.now() + wait > end) return rest;
      await new Promise<void>((resolve) => this.#system.clock.setTimer(wait, resolve));
    }
  }
}

/** The host interface created by the network of Windows containers; kube-proxy's choice. */
export const HNS_INTERFACE = 'vEthernet (HNS Internal NIC)';

/** The variable from which kube-proxy's winuserspace read the name. */
export const INTERFACE_VARIABLE = 'INTERFACE_TO_ADD_SERVICE_IP';

/**
 * Chooses the interface for service addresses. Windows accepts packets only on the interface with the address, so one
 * that pods can reach is preferred, and loopback comes last. `interfaces`: those that are up; by default from Node.
 */
export function chooseInterface(
  flag: string,
  env: NodeJS.ProcessEnv,
  interfaces: ReturnType<typeof networkInterfaces> = networkInterfaces(),
): { readonly name: string; readonly reason: string } {
  const names = Object.keys(interfaces).sort();
  const candidates = [
    [flag, '--portal-interface names it'],
    [env[INTERFACE_VARIABLE], `${INTERFACE_VARIABLE} names it`],
    [names.find((name) => name === HNS_INTERFACE), 'it is the one of the host network service'],
    [
      names.find((name) => name.startsWith('vEthernet (')),
      `it is the first virtual interface of the host; there is no ${HNS_INTERFACE}`,
    ],
    [
      names.find((name) => interfaces[name]?.some(({ internal }) => internal)),
      'there is no virtual interface; only programs of the host get there',
    ],
    [HNS_INTERFACE, 'it is the one that kube-proxy uses; no interface is up'],
  ] as const;
  const [name = '', reason] = candidates.find(([each = '']) => each !== '') ?? ['', ''];
  return { name, reason };
}

/** Service addresses on an interface of this host. Throws KPNG_USAGE for an invalid name. */
export function windowsLink(name: string, env: NodeJS.ProcessEnv, exec?: Exec): InterfaceAddresses {
  return new WindowsInterface(name, ledgerFor(env, name), exec && { exec });
}
