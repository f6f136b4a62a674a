/** Address family. */
export type Family = 4 | 6;

/** The family of an IP literal. */
export function familyOf(address: string): Family {
  return address.includes(':') ? 6 : 4;
}
