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

/** A service whose port belongs to another one, and that one. */
export interface Waiting {
  readonly service: string;
  readonly port: number;
  readonly holder: string;
}

/** The owner of each port. The first service keeps it; the next one gets it as soon as it is released. */
export class CheckPorts {
  readonly #checks = new Map<string, HealthCheck>();
  /** Services by port, the holder first. */
  readonly #claims = new Map<number, string[]>();

  /** Every port that a service needs. */
  get ports(): ReadonlySet<number> {
    return new Set(this.#claims.keys());
  }

  /** Replaces the check of a service; undefined: it has none. */
  set(service: string, check: HealthCheck | undefined): void {
    const before = this.#checks.get(service);
    if (check === undefined) this.#checks.delete(service);
    else this.#checks.set(service, check);
    if (before?.port === check?.port) return;
    if (before !== undefined) this.#release(before.port, service);
    if (check === undefined) return;
    const claims = this.#claims.get(check.port);
    if (claims === undefined) this.#claims.set(check.port, [service]);
    else claims.push(service);
  }

  /** The health check on a port. */
  holder(port: number): HealthCheck | undefined {
    return this.#checks.get(this.#claims.get(port)?.[0] ?? '');
  }

  /** Services that wait for their port. */
  waiting(): Waiting[] {
    return [...this.#claims].flatMap(([port, [holder = '', ...others]]) =>
      others.map((service) => ({ service, port, holder })),
    );
  }

  #release(port: number, service: string): void {
    const left = (this.#claims.get(port) ?? []).filter((each) => each !== service);
    if (left.length === 0) this.#claims.delete(port);
    else this.#claims.set(port, left);
  }
}
