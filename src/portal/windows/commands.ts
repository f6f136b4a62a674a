/** The command lines of netsh, for processes of their own and as lines of a script. */
import { familyOf, type Family } from '../../util/family.ts';

/** Lists the addresses of an interface. For IPv4 as kube-proxy's winuserspace did. */
export function listArgs(family: Family, name: string): string[] {
  return family === 4
    ? ['interface', 'ipv4', 'show', 'address', `name=${name}`]
    : ['interface', 'ipv6', 'show', 'addresses', `interface=${name}`];
}

/**
 * Adds an address as a network of its own, until the next boot, and never as the source of
 * connections of the host to elsewhere. Older versions of netsh take a length behind a slash for
 * IPv6 only, so IPv4 has a mask.
 */
export function addArgs(address: string, name: string): string[] {
  return familyOf(address) === 4
    ? [...ADD_IPV4, `name=${name}`, `address=${address}`, 'mask=255.255.255.255', ...ADDED]
    : [...ADD_IPV6, `interface=${name}`, `address=${address}/128`, ...ADDED];
}

/** Removes an address that was added so. */
export function deleteArgs(address: string, name: string): string[] {
  return familyOf(address) === 4
    ? [...DELETE_IPV4, `name=${name}`, `address=${address}`, 'store=active']
    : [...DELETE_IPV6, `interface=${name}`, `address=${address}`, 'store=active'];
}

const ADD_IPV4 = ['interface', 'ipv4', 'add', 'address'] as const;
const ADD_IPV6 = ['interface', 'ipv6', 'add', 'address'] as const;
const DELETE_IPV4 = ['interface', 'ipv4', 'delete', 'address'] as const;
const DELETE_IPV6 = ['interface', 'ipv6', 'delete', 'address'] as const;
const ADDED = ['skipassource=true', 'store=active'] as const;

/** A command as a line of a script for `netsh -f`; undefined when a script cannot say it. */
export function scriptLine(args: readonly string[]): string | undefined {
  // Scripts are read in the code page of the system, and have no way to write a quote.
  if (args.some((arg) => !/^[ !#-~]+$/.test(arg))) return undefined;
  return args
    .map((arg) => {
      if (!arg.includes(' ')) return arg;
      const at = arg.indexOf('=') + 1;
      return `${arg.slice(0, at)}"${arg.slice(at)}"`;
    })
    .join(' ');
}
