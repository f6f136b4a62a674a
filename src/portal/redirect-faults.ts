import { isIP } from 'node:net';
import type { PortalProblem, PortalSpec } from './portal.ts';
import { portalText } from './text.ts';

/** `10.0.0.1:80/TCP`, or `node port 30080/TCP`. */
export function placeText({ address, port, protocol }: PortalSpec): string {
  if (address === undefined) return `node port ${port}/${protocol}`;
  return portalText({ address, port, protocol });
}

/** Why a portal can never be had as it is; undefined: it can. `families` are those of it that the host has. */
export function faultOf(
  servicePort: string,
  portal: PortalSpec,
  families: readonly (4 | 6)[],
): PortalProblem | undefined {
  const { address, port, sourceRanges } = portal;
  const problem = (code: string, why: string): PortalProblem => ({
    servicePort,
    portal,
    code,
    message: `${servicePort} cannot have ${placeText(portal)}: ${why}`,
  });
  if (address !== undefined && (isIP(address) === 0 || address.includes('%'))) {
    return problem('KPNG_SERVICE_INVALID', 'that is not an address');
  }
  if (!Number.isInteger(port) || port < 1 || port > 65_535) {
    return problem('KPNG_SERVICE_INVALID', 'a port is a number from 1 to 65535');
  }
  if (address === undefined && sourceRanges.length > 0) {
    return problem('KPNG_SERVICE_INVALID', 'a node port cannot be limited to source ranges');
  }
  if (families.length === 0) {
    return problem(
      'KPNG_LISTEN_ADDRESS_NOT_AVAILABLE',
      'the host does not have that address family',
    );
  }
  return undefined;
}
