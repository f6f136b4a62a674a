import { networkInterfaces, uptime } from 'node:os';
import { join } from 'node:path';
import { KpngError } from '../../errors.ts';
import type { Exec } from '../exec.ts';
import type { InterfaceAddresses } from '../interface/addresses.ts';
import { WindowsInterface } from './addresses.ts';
import { AddressLedger } from './ledger.ts';

/** The host interface created by the network of Windows containers; kube-proxy's choice. */
export const HNS_INTERFACE = 'vEthernet (HNS Internal NIC)';

/** The variable from which kube-proxy's winuserspace read the name. */
export const INTERFACE_VARIABLE = 'INTERFACE_TO_ADD_SERVICE_IP';

/** An interface of the host. */
export interface NamedInterface {
  readonly name: string;
  readonly loopback: boolean;
}

/** The interface for service addresses, and why. */
export interface ChosenInterface {
  readonly name: string;
  readonly reason: string;
}

/**
 * Chooses the interface for service addresses. Windows accepts packets only on the interface with the address, so one
 * that pods can reach is preferred, and loopback comes last. `interfaces`: those that are up.
 */
export function chooseInterface(
  flag: string,
  env: Readonly<Record<string, string | undefined>>,
  interfaces: readonly NamedInterface[],
): ChosenInterface {
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

type Environment = Readonly<Record<string, string | undefined>>;

/** The interfaces of the host that are up, from Node. */
export function namedInterfaces(): NamedInterface[] {
  return Object.entries(networkInterfaces()).map(([name, list = []]) => ({
    name,
    loopback: list.some(({ internal }) => internal),
  }));
}

/** Throws KPNG_USAGE for an invalid interface name on Windows. */
export function checkWindowsInterfaceName(name: string): void {
  // A quote would end the name on netsh's command line; the other characters are not allowed in names.
  if (/^[^"\\/:*?<>|\p{Cc}]{1,256}$/u.test(name)) return;
  throw new KpngError(
    'KPNG_USAGE',
    `${JSON.stringify(name)} cannot be the name of a network interface: up to 256 characters, and none of ` +
      String.raw`" \ / : * ? < > |`,
  );
}

/** Path of the record of our addresses on an interface. */
export function ledgerPath(name: string, env: Environment): string {
  return join(dataFolder(env), `addresses on ${name}.txt`);
}

/** Service addresses on an interface of this host. Throws KPNG_USAGE for an invalid name. */
export function windowsLink(name: string, env: Environment, exec?: Exec): InterfaceAddresses {
  checkWindowsInterfaceName(name);
  const ledger = new AddressLedger(ledgerPath(name, env), () => Date.now() - uptime() * 1000);
  return new WindowsInterface({ name, ledger, ...(exec !== undefined && { exec }) });
}

/** The record of our portproxy rules, which outlive boots. */
export function ruleLedger(env: Environment): AddressLedger {
  return new AddressLedger(join(dataFolder(env), 'portproxy rules.txt'), () => 0);
}

function dataFolder(env: Environment): string {
  const folder = env['ProgramData'] ?? env['PROGRAMDATA'] ?? String.raw`C:\ProgramData`;
  return join(folder, 'kpng-userspace');
}
