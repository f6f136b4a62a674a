export type Family = 4 | 6;

export function familyOf(address: string): Family {
  return address.includes(':') ? 6 : 4;
}
