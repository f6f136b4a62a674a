/** The services that are measured: one cluster IP, one TCP port, two endpoints each. */
import { writeItem } from '../../src/file/changes.ts';
import type { GlobalTransaction } from '../../src/store/global-store.ts';
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

/** Writes the n-th service and its endpoints. */
export function putService(
  transaction: GlobalTransaction,
  n: number,
  addresses: readonly string[] = ENDPOINT_ADDRESSES,
): void {
  const name = serviceName(n);
  writeItem(transaction, {
    service: {
      namespace: NAMESPACE,
      name,
      type: 'ClusterIP',
      ips: { clusterips: { v4: [serviceAddress(n)] } },
      ports: [{ name: 'http', port: SERVICE_PORT, targetport: ENDPOINT_PORT }],
    },
    endpoints: addresses.map((address) => ({
      podname: `pod-${address}`,
      endpoint: { ips: { v4: [address] } },
    })),
  });
}

/** Removes the n-th service and its endpoints. */
export function removeService(transaction: GlobalTransaction, n: number): void {
  const name = serviceName(n);
  transaction.setSource({ namespace: NAMESPACE, name, serviceName: name, endpoints: [] });
  transaction.setService(`${NAMESPACE}/${name}`, undefined);
}
