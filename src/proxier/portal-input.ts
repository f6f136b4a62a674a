import type { ServicePortPortals } from '../portal/portal.ts';
import type { DesiredServicePort } from './desired.ts';
import { samePortals } from './diff.ts';

/** What a portal has to know of one service port. */
export type PortalInput = Required<Omit<ServicePortPortals, 'servicePort'>>;

/**
 * Of its endpoints a portal knows only whether there are any, and only if it redirects: nothing else
 * about endpoints concerns a portal.
 */
export function portalInput(
  { spec, portals, splitTraffic }: DesiredServicePort,
  redirects: boolean,
): PortalInput {
  if (!redirects) return { portals, served: SERVED, splitTraffic: true };
  const served = {
    internal: spec.endpoints.some(({ internal }) => internal),
    external: spec.endpoints.some(({ external }) => external),
  };
  return { portals, served, splitTraffic };
}

const SERVED = { internal: true, external: true } as const;

/** Whether a portal would see no difference. */
export function samePortalInput(a: PortalInput, b: PortalInput): boolean {
  return (
    a.served.internal === b.served.internal &&
    a.served.external === b.served.external &&
    a.splitTraffic === b.splitTraffic &&
    samePortals(a.portals, b.portals)
  );
}
