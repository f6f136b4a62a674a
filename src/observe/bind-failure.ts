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
