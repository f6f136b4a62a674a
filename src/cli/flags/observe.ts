import { isLoopback, type HostPort } from '../../util/host-port.ts';
import { choice, text, toggle } from './kinds.ts';
import { usage } from './read.ts';
import { flag, group, type FlagValues } from './table.ts';

const GROUP = 'Health and metrics';

/** Access to the pages for metrics and health, and their TLS. */
export const OBSERVE_FLAGS = group(GROUP, {
  'metrics-tls-crt': flag(text('path'), '', {
    help: 'PEM file with the certificate of the metrics server; enables HTTPS. Reloaded when it changes.',
  }),
  'metrics-tls-key': flag(text('path'), '', { help: 'PEM file with the key of that certificate.' }),
  'healthz-tls-crt': flag(text('path'), '', {
    help: 'PEM file with the certificate of the health server; enables HTTPS. Reloaded when it changes.',
  }),
  'healthz-tls-key': flag(text('path'), '', { help: 'PEM file with the key of that certificate.' }),
  'metrics-authentication': flag(choice(['none', 'delegated']), 'none', {
    help:
      'Who may read metrics from other hosts. delegated: clients send a bearer token, which the cluster ' +
      'authenticates (TokenReview) and authorizes for the path (SubjectAccessReview); needs ' +
      '--metrics-tls-crt. Probes need no token.',
  }),
  'metrics-per-endpoint': flag(toggle(), false, {
    help: 'Also count connections, bytes and errors of each endpoint. The page grows with the number of endpoints.',
  }),
  'metrics-exemplars': flag(toggle(), false, {
    help: 'In OpenMetrics, name the endpoint that failed last beside each count of failed attempts to connect.',
  }),
  'authentication-kubeconfig': flag(text('path'), '', {
    help: 'Kubeconfig file of the cluster that reviews tokens. Empty: the service account of the pod.',
    env: 'KUBECONFIG',
  }),
});

export type ObserveOptions = FlagValues<typeof OBSERVE_FLAGS>;

/** Whether clients on other hosts can reach an address. */
export function isExposed({ host }: HostPort): boolean {
  return host !== 'localhost' && !isLoopback(host);
}

/** Throws a usage error if tokens would be sent over an unencrypted connection. */
export function checkObserve(
  options: ObserveOptions & { readonly metricsBindAddress: HostPort | undefined },
): void {
  const { metricsBindAddress: address, metricsAuthentication, metricsTlsCrt } = options;
  if (metricsAuthentication === 'none' || address === undefined) return;
  if (!isExposed(address) || metricsTlsCrt !== '') return;
  throw usage(
    '--metrics-authentication delegated needs --metrics-tls-crt: tokens must not cross the network in plaintext',
  );
}
