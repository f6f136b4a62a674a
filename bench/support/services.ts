import type { ServiceDescription } from '../../examples/support/state-file.ts';

/** So many services of one port, at 127.79.0.0/16, whose endpoint does not listen. */
export function unusedServices(count: number): ServiceDescription[] {
  return Array.from({ length: count }, (_, n) => ({
    namespace: 'unused',
    name: `service-${n}`,
    clusterIP: `127.79.${Math.floor(n / 250)}.${(n % 250) + 1}`,
    ports: [{ name: 'http', protocol: 'TCP', port: 8080, targetPort: 8080 }],
    endpoints: [{ name: `pod-${n}`, address: '127.78.3.2' }],
  }));
}
