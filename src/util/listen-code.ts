import { messageOf, type ErrorCode } from '../errors.ts';
import type { HostPort } from './host-port.ts';
import { socketHolder } from './socket-holder.ts';

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

/** Why a TCP address cannot be listened on. */
export interface ListenFailure {
  readonly code: ErrorCode;
  /** The program that listens there, or the system's message. */
  readonly reason: string;
  readonly cause: Error;
}

export async function listenFailure(
  cause: NodeJS.ErrnoException,
  { host: address, port }: HostPort,
): Promise<ListenFailure> {
  const { code = '' } = cause;
  const holder =
    code === 'EADDRINUSE' ? await socketHolder({ protocol: 'TCP', address, port }) : undefined;
  const reason = holder === undefined ? messageOf(cause) : `${holder} listens there`;
  return { code: listenCode(code), reason, cause };
}
