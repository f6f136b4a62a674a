import type { Log } from './log.ts';
import { KpngError, messageOf } from '../errors.ts';
import { formatHostPort, type HostPort } from '../util/host-port.ts';
import { listenCode } from '../util/listen-code.ts';
import { holderText, socketHolder, type SocketHolder } from '../util/socket-holder.ts';

/** Says why nothing is served at an address, and which program listens there if one does. */
export async function bindFailure(
  { host, port }: HostPort,
  cause: NodeJS.ErrnoException,
  holderOf: typeof socketHolder = socketHolder,
): Promise<KpngError> {
  let holder: SocketHolder | undefined;
  if (cause.code === 'EADDRINUSE') {
    holder = await holderOf({ protocol: 'TCP', address: host, port });
  }
  const place = formatHostPort({ host, port });
  const reason = holder === undefined ? messageOf(cause) : `${holderText(holder)} listens there`;
  return new KpngError(listenCode(cause.code ?? ''), `cannot listen on ${place}: ${reason}`, {
    cause,
  });
}

/**
 * Makes a function that logs that an address cannot be listened on yet: once for each reason, not at every
 * attempt, since another program may have the address for days.
 */
export function bindFailureLog(
  log: Log,
  message: string,
  address: HostPort,
  holderOf?: typeof socketHolder,
): (cause: NodeJS.ErrnoException, retryInMs: number) => void {
  let logged = '';
  const write = async (cause: NodeJS.ErrnoException, retryInMs: number): Promise<void> => {
    const err = await bindFailure(address, cause, holderOf);
    if (err.message === logged) return;
    logged = err.message;
    log.warn(message, { address: formatHostPort(address), err, retryInMs });
  };
  return (cause, retryInMs) => void write(cause, retryInMs);
}
