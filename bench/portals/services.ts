/** The services that are measured: one cluster IP, one TCP port, two endpoints each. */
import { Endpoint, Service } from '../../src/api/generated/localv1/api.ts';
import type { LocalView, ServiceEntry } from '../../src/store/local-view.ts';
import { ENDPOINT_ADDRESSES, ENDPOINT_PORT } from './network.ts';

export const SERVICE_PORT = 80;
export const NAMESPACE = 'bench';

/** Name of the n-th service; in order of n as in order of the alphabet. */
export function serviceName(n: number): string {
  return `s${String(n).padStart(6, '0')}`;
}

/** Its cluster IP, in 10.96.0.0/12. */
export function serviceAddress(n: number): string {
  return `10.${96 + (n >> 16)}.${(n >> 8) & 255}.${n & 255}`;
}

/** The n-th service as a sink gets it. */
export function serviceEntry(
  n: number,
  endpoints: readonly string[] = ENDPOINT_ADDRESSES,
): ServiceEntry {
  const name = serviceName(n);
  return {
    key: `${NAMESPACE}/${name}`,
    service: Service.fromPartial({
      namespace: NAMESPACE,
      name,
      type: 'ClusterIP',
      ips: { clusterIPs: { v4: [serviceAddress(n)] } },
      ports: [{ name: 'http', protocol: 1, port: SERVICE_PORT, targetPort: ENDPOINT_PORT }],
    }),
    endpoints: new Map(
      endpoints.map((address) => [
        `pod-${address}`,
        Endpoint.fromPartial({
          ips: { v4: [address] },
          scopes: { internal: true, external: true },
        }),
      ]),
    ),
  };
}

/** A view that can be changed. Its services are in order as long as they are added in order. */
export class BenchView implements LocalView {
  readonly #entries = new Map<string, ServiceEntry>();

  get size(): number {
    return this.#entries.size;
  }

  get(key: string): ServiceEntry | undefined {
    return this.#entries.get(key);
  }

  entries(): Iterable<ServiceEntry> {
    return this.#entries.values();
  }

  set(entry: ServiceEntry): void {
    this.#entries.set(entry.key, entry);
  }

  delete(key: string): void {
    this.#entries.delete(key);
  }
}
