/** Numbers as people read them in a narrow column. */

const BYTE_UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'] as const;
const COUNT_UNITS = ['', 'k', 'M', 'G', 'T'] as const;

/** Three digits and a unit: `0`, `950`, `1.25k`, `31.4M`. */
export function count(value: number): string {
  return scaled(value, COUNT_UNITS, '');
}

/** Bytes in powers of 1000, as network rates are: `0 B`, `1.5 kB`, `117 MB`. */
export function bytes(value: number): string {
  return scaled(value, BYTE_UNITS, ' ');
}

function scaled(value: number, units: readonly string[], gap: string): string {
  let rest = value;
  let unit = 0;
  // What rounds up to 1000 takes the next unit.
  while (rest >= 999.5 && unit < units.length - 1) {
    rest /= 1000;
    unit += 1;
  }
  return `${digits(rest, unit > 0)}${gap}${units[unit] ?? ''}`;
}

/** Three digits; below 10 with a fraction where that says something. */
function digits(value: number, isScaled: boolean): string {
  if (value >= 100 || Number.isInteger(value)) return String(Math.round(value));
  if (value >= 10) return trimmed(value.toFixed(1));
  return trimmed(value.toFixed(isScaled ? 2 : 1));
}

function trimmed(text: string): string {
  return text.replace(/\.?0+$/, '') || '0';
}

/** `12s`, `3m05s`, `4h07m`, `12d03h`. */
export function age(seconds: number): string {
  const whole = Math.floor(seconds);
  const two = (value: number): string => String(value).padStart(2, '0');
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)}h${two(Math.floor(whole / 60) % 60)}m`;
  return `${Math.floor(whole / 86_400)}d${two(Math.floor(whole / 3600) % 24)}h`;
}

/** A bound of the histogram of connect times: `1 ms`, `2.5 s`; null: beyond the last one. */
export function atMost(seconds: number | null, total: number): string {
  if (total === 0) return '-';
  if (seconds === null) return '> 2.5 s';
  return seconds < 1 ? `≤ ${seconds * 1000} ms` : `≤ ${seconds} s`;
}
