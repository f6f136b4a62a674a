import ipaddr from 'ipaddr.js';

/** The one text that an address has everywhere in this program. */
export function canonicalAddress(address: string): string {
  return address.includes(':') ? ipaddr.parse(address).toString() : address;
}
