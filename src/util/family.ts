export type Family = 4 | 6;

export const FAMILIES: readonly Family[] = [4, 6];

/** The address that means every address of the family. */
export const WILDCARD: Readonly<Record<Family, string>> = { 4: '0.0.0.0', 6: '::' };

export function familyOf(address: string): Family {
  return address.includes(':') ? 6 : 4;
}

/** The network of one address: `10.0.0.1/32` or `fd00::1/128`. */
export function hostNetwork(address: string): string {
  return `${address}/${familyOf(address) === 6 ? 128 : 32}`;
}

/** Whether an address means every address of its family: `::` has other spellings, all of which hold only zeros. */
export function isWildcard(address: string): boolean {
  return /^[0:.]+$/.test(address);
}
