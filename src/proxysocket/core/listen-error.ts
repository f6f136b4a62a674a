import { isIP } from 'node:net';
import { KpngError } from '../../errors.ts';
import { formatHostPort } from '../../util/host-port.ts';
import { listenCode } from '../../util/listen-code.ts';
import type { ListenSpec, Protocol } from '../spec.ts';

/** Why a listener failed. */
export interface ListenFailure {
  readonly error: KpngError;
  /** The operating system's code, such as EADDRINUSE. */
  readonly cause: string;
}

/** Says what was being done for whom, and why it failed. */
export function listenFailure(
  servicePort: string,
  protocol: Protocol,
  { address, port }: ListenSpec,
  reason: unknown,
): ListenFailure {
  const cause = systemCode(reason);
  const place = formatHostPort({ host: address, port });
  const error = new KpngError(
    listenCode(cause),
    `cannot listen on ${place}/${protocol} for ${servicePort}: ${cause}`,
    { cause: reason, servicePort },
  );
  return { error, cause };
}

/** Refuses what the socket API would take for a host name and look up. */
export function assertAddress({ address }: ListenSpec): void {
  if (isIP(address) !== 0) return;
  throw Object.assign(new Error(`${JSON.stringify(address)} is not an IP address`), {
    code: 'EINVAL',
  });
}

function systemCode(reason: unknown): string {
  const code = reason instanceof Error && 'code' in reason ? reason.code : undefined;
  return typeof code === 'string' ? code : 'UNKNOWN';
}
