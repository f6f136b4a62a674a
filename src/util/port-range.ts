/** A closed range of ports. */
export interface PortRange {
  readonly first: number;
  readonly last: number;
}

/**
 * Parses a port range in kube-proxy's three forms: `36000-37000` (first and last), `36000+1000` (first and how many
 * more) and `36000` (one port). Undefined when the text is something else or the range is not within 1 to 65535.
 */
export function parsePortRange(text: string): PortRange | undefined {
  const match = /^(\d{1,5})(?:([-+])(\d{1,5}))?$/.exec(text.replaceAll(' ', ''));
  if (match === null) return undefined;
  const first = Number(match[1]);
  const second = Number(match[3]);
  const last = match[2] === undefined ? first : match[2] === '+' ? first + second : second;
  if (first < 1 || last < first || last > 65_535) return undefined;
  return { first, last };
}

export function isPort(port: number): boolean {
  return Number.isInteger(port) && port >= 1 && port <= 65_535;
}
