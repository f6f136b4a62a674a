import type { ServiceEntry } from '../../store/local-view.ts';
import type { HttpResponse } from '../../util/http-server.ts';

/** The health check of one service. */
export interface HealthCheck {
  /** `namespace/name`. */
  readonly service: string;
  /** From the state, unvalidated. */
  readonly port: number;
  /** Number of the service's ready endpoints on this node. */
  readonly localEndpoints: number;
}

/**
 * The health check of a service: those with the policy `externalTrafficPolicy: Local` and a health-check node port
 * have one. As in kube-proxy, every local endpoint that is ready counts, for any traffic; one that serves while it
 * terminates does not, so that load balancers look elsewhere.
 */
export function healthCheckOf(entry: ServiceEntry): HealthCheck | undefined {
  const { externalTrafficToLocal, healthCheckNodePort: port } = entry.service;
  if (port === 0 || !externalTrafficToLocal) return undefined;
  let localEndpoints = 0;
  for (const { local, terminating = false } of entry.endpoints.values()) {
    if (local && !terminating) localEndpoints += 1;
  }
  return { service: entry.key, port, localEndpoints };
}

/**
 * The response to a load balancer, in kube-proxy's format: 200 when this node should get traffic for the service, 503
 * when not. `healthy`: the proxy on this node works.
 */
export function answerFor(
  { service, localEndpoints }: HealthCheck,
  healthy: boolean,
): HttpResponse {
  const at = service.indexOf('/');
  const body = {
    service: { namespace: service.slice(0, at), name: service.slice(at + 1) },
    localEndpoints,
    serviceProxyHealthy: healthy,
  };
  return {
    status: localEndpoints > 0 && healthy ? 200 : 503,
    type: 'application/json',
    body: JSON.stringify(body, undefined, '\t'),
    headers: { 'x-load-balancing-endpoint-weight': String(localEndpoints) },
  };
}
