/** Sizes in bytes, written as Kubernetes writes quantities: `4194304`, `4Mi`, `512Ki`. */

const UNITS = ['', 'Ki', 'Mi', 'Gi'] as const;

/** Parses a size. Returns bytes, or undefined when the text is not a whole number of them. */
export function parseBytes(text: string): number | undefined {
  const match = /^(\d+)(Ki|Mi|Gi)?$/.exec(text);
  if (match === null) return undefined;
  const factor = 1024 ** UNITS.indexOf((match[2] ?? '') as (typeof UNITS)[number]);
  const bytes = Number(match[1]) * factor;
  return Number.isSafeInteger(bytes) ? bytes : undefined;
}

/** Writes bytes with the largest unit that needs no fraction. */
export function formatBytes(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value !== 0 && value % 1024 === 0 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value}${UNITS[unit]}`;
}
