import { isIP } from 'node:net';
import { formatHostPort } from '../../util/host-port.ts';
import { endpointInvalid } from '../events.ts';
import type { EndpointSpec } from '../spec.ts';

/** Whether an endpoint can be used. The socket API would resolve a host name, and throw at an invalid port. */
export function isUsable(servicePort: string, { address, port }: EndpointSpec): boolean {
  if (isIP(address) !== 0 && Number.isInteger(port) && port > 0 && port <= 65_535) return true;
  if (endpointInvalid.hasSubscribers) {
    endpointInvalid.publish({ servicePort, endpoint: formatHostPort({ host: address, port }) });
  }
  return false;
}
