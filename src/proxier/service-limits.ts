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

/** The same object for very many services. */
export const NO_PROBLEMS: readonly KpngError[] = [];

/** Why parts of a service, or of its service ports, are not proxied. */
export class ServiceProblems {
  readonly #service: string;
  readonly #all: KpngError[] = [];

  constructor(service: string) {
    this.#service = service;
  }

  /** `subject`: the service, or one of its service ports. */
  add(message: string, subject = this.#service, code: ErrorCode = 'KPNG_SERVICE_INVALID'): void {
    this.#all.push(new KpngError(code, `${subject}: ${message}`, { servicePort: subject }));
  }

  /** Adds one if part of the service exceeds a limit. */
  check(what: string, count: number, limit: number, leftOut: string): void {
    if (count <= limit) return;
    const message = `${count} ${what} exceed the limit of ${limit} for one service; ${leftOut}`;
    this.add(message, this.#service, 'KPNG_SERVICE_TOO_LARGE');
  }

  /** The first ones, and the number of the others. To be called once. */
  list(): readonly KpngError[] {
    const more = this.#all.length - MAX_SERVICE_PROBLEMS;
    if (more <= 0) return this.#all.length === 0 ? NO_PROBLEMS : this.#all;
    // An exceeded limit explains the rest, and was found last.
    const rank = ({ code }: KpngError): number => (code === 'KPNG_SERVICE_TOO_LARGE' ? 0 : 1);
    this.#all.sort((a, b) => rank(a) - rank(b)).splice(MAX_SERVICE_PROBLEMS);
    this.add(`${more} more problems are not reported`);
    return this.#all;
  }
}

/** A text of the service in quotes, shortened. */
export function quoted(text: string): string {
  return JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text);
}
