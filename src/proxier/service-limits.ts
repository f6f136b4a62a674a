/** Limits for one service: without them, any user who can create Services could keep every node busy. */
import { type ErrorCode, KpngError } from '../errors.ts';

/** Addresses of all kinds. */
export const MAX_SERVICE_ADDRESSES = 1000;

export const MAX_SERVICE_PORTS = 5000;

/** Client networks in all filters. */
export const MAX_SERVICE_RANGES = 2000;

/** Addresses times ports; each source range counts as well. Packet rules grow with this. */
export const MAX_SERVICE_PORTALS = 10_000;

/** Endpoints times ports. The engine's state grows with this. */
export const MAX_SERVICE_ROWS = 200_000;

/** Maximum number of reported problems; the others are counted. */
export const MAX_SERVICE_PROBLEMS = 20;

/** Why part of a service, or of a service port, is not proxied. */
export function problemOf(
  servicePort: string,
  message: string,
  code: ErrorCode = 'KPNG_SERVICE_INVALID',
): KpngError {
  return new KpngError(code, `${servicePort}: ${message}`, { servicePort });
}

/** The error for the part of a service beyond a limit. */
export function tooMany(
  key: string,
  what: string,
  count: number,
  limit: number,
  leftOut: string,
): KpngError {
  const message = `${count} ${what} exceed the limit of ${limit} for one service; ${leftOut}`;
  return problemOf(key, message, 'KPNG_SERVICE_TOO_LARGE');
}

/** The first problems of a service, and the number of others. */
export function limitProblems(key: string, problems: readonly KpngError[]): readonly KpngError[] {
  const more = problems.length - MAX_SERVICE_PROBLEMS;
  if (more <= 0) return problems;
  // An exceeded limit explains the rest, and comes last.
  const kept = [...problems].sort((a, b) => rank(a) - rank(b)).slice(0, MAX_SERVICE_PROBLEMS);
  return [...kept, problemOf(key, `${more} more problems are not reported`)];
}

function rank({ code }: KpngError): number {
  return code === 'KPNG_SERVICE_TOO_LARGE' ? 0 : 1;
}

/** A text of the service in quotes, shortened. */
export function quoted(text: string): string {
  return JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text);
}
