import type { ErrorCode } from '../errors.ts';

const CODES: Readonly<Record<string, ErrorCode>> = {
  EADDRNOTAVAIL: 'KPNG_LISTEN_ADDRESS_NOT_AVAILABLE',
  EADDRINUSE: 'KPNG_LISTEN_ADDRESS_IN_USE',
  EACCES: 'KPNG_LISTEN_PERMISSION',
  EPERM: 'KPNG_LISTEN_PERMISSION',
  EMFILE: 'KPNG_LIMIT_REACHED',
  ENFILE: 'KPNG_LIMIT_REACHED',
};

/** The error code for a failed listen, such as with `EADDRINUSE`. */
export function listenCode(cause: string): ErrorCode {
  return CODES[cause] ?? 'KPNG_LISTEN_FAILED';
}
