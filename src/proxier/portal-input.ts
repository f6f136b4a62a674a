import type { ServicePortPortals } from '../portal/portal.ts';
import type { DesiredServicePort } from './desired.ts';
import { samePortals } from './diff.ts';

/** What a portal has to know of one service port. */
export type PortalInput = Required<Omit<ServicePortPortals, 'servicePort'>>;

/** What decides whether a portal lets clients in. */
export interface PortalPolicy {
  /** Whether the portal leads clients to proxy ports, and so can refuse them. */
  readonly redirects: boolean;
  /** Whether the engine lets TCP clients wait for an endpoint. */
  readonly holds: boolean;
}

/**
 * Of its endpoints a portal knows only whether there are any, and only if it redirects and clients of none
 * have nothing to wait for: nothing else about endpoints concerns a portal.
 */
export function portalInput(
  { spec, portals, splitTraffic }: DesiredServicePort,
  { redirects, holds }: PortalPolicy,
): PortalInput {
  if (!redirects) return { portals, served: SERVED, splitTraffic: true };
  if (holds && spec.protocol === 'TCP') return { portals, served: SERVED, splitTraffic };
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
