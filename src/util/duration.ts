/**
 * Durations as Go programs write them: `250ms`, `1m30s`, `1.5h`.
 *
 * kpng and kube-proxy take all their times in this form, so command lines carry over.
 */

const UNIT_MS: Readonly<Record<string, number>> = {
  ns: 1e-6,
  us: 1e-3,
  µs: 1e-3, // U+00B5, micro sign
  μs: 1e-3, // U+03BC, Greek letter mu
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
};

const PART = /(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)/y;

/**
 * Parses a duration. Returns milliseconds, possibly fractional, or undefined when the text is not a duration. A bare
 * `0` is allowed, any other number needs a unit; negative durations are rejected.
 */
export function parseDuration(text: string): number | undefined {
  if (/^\+?0$/.test(text)) return 0;
  let position = text.startsWith('+') ? 1 : 0;
  if (position === text.length) return undefined;
  let total = 0;
  while (position < text.length) {
    PART.lastIndex = position;
    const match = PART.exec(text);
    if (match === null) return undefined;
    total += Number(match[1]) * (UNIT_MS[match[2] ?? ''] ?? Number.NaN);
    position = PART.lastIndex;
  }
  return total;
}

/**
 * Writes milliseconds in the shortest form that `parseDuration` reads back: `1m30s`, `250ms`, `0s`.
 * Precise to a nanosecond.
 */
export function formatDuration(ms: number): string {
  if (ms === 0) return '0s';
  if (ms < 1) {
    const nanoseconds = Math.round(ms * 1e6);
    if (nanoseconds === 0) return '0s';
    return nanoseconds % 1000 === 0 ? `${nanoseconds / 1000}us` : `${nanoseconds}ns`;
  }
  if (ms < 1000) return `${trim(ms)}ms`;
  const hours = Math.floor(ms / 3_600_000);
  const minutes = Math.floor((ms % 3_600_000) / 60_000);
  const seconds = trim((ms % 60_000) / 1000, 9);
  const parts: string[] = [];
  if (hours > 0) parts.push(`${hours}h`);
  if (minutes > 0) parts.push(`${minutes}m`);
  if (seconds !== '0') parts.push(`${seconds}s`);
  return parts.join('');
}

/** A number without trailing zeros, to at most `digits` decimals. */
function trim(value: number, digits = 6): string {
  return value.toFixed(digits).replace(/\.?0+$/, '');
}
