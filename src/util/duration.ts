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

const PART = /(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)/g;
const ALL = new RegExp(`^\\+?(?:${PART.source})+$`);

/**
 * Parses a duration. Returns milliseconds, possibly fractional, or undefined when the text is not a duration. A bare
 * `0` is allowed, any other number needs a unit; negative durations are rejected.
 */
export function parseDuration(text: string): number | undefined {
  if (/^\+?0$/.test(text)) return 0;
  if (!ALL.test(text)) return undefined;
  const parts = [...text.matchAll(PART)];
  return parts.reduce((sum, [, n, unit = '']) => sum + Number(n) * (UNIT_MS[unit] ?? NaN), 0);
}

/**
 * Writes milliseconds in the shortest form that `parseDuration` reads back: `1m30s`, `250ms`, `0s`.
 * Precise to a nanosecond.
 */
export function formatDuration(ms: number): string {
  const ns = Math.round(ms * 1e6);
  if (ns === 0) return '0s';
  if (ns < 1000) return `${ns}ns`;
  if (ns < 1e6) return `${ns / 1000}us`;
  if (ns < 1e9) return `${ns / 1e6}ms`;
  const hours = Math.floor(ns / 3.6e12);
  const minutes = Math.floor((ns % 3.6e12) / 6e10);
  const seconds = ((ns % 6e10) / 1e9).toFixed(9).replace(/\.?0+$/, '');
  const parts = [hours > 0 && `${hours}h`, minutes > 0 && `${minutes}m`];
  return [...parts, seconds !== '0' && `${seconds}s`].filter(Boolean).join('');
}
