import { isIP } from 'node:net';
import { KpngError } from '../../errors.ts';
import type { HostPort } from '../../util/host-port.ts';
import type { TlsFlags } from '../../util/tls-files.ts';
import { choice, text, toggle } from './kinds.ts';
import { flag, group, type FlagValues } from './table.ts';

const GROUP = 'Health and metrics';

/** Who may see the pages for metrics and health, and how they are carried. */
export const OBSERVE_FLAGS = group(GROUP, {
  'metrics-tls-crt': flag(
    text('path'),
    '',
    'PEM file with the certificate of the metrics server, which serves HTTPS then. Read again when it changes.',
  ),
  'metrics-tls-key': flag(text('path'), '', 'PEM file with the key of that certificate.'),
  'healthz-tls-crt': flag(
    text('path'),
    '',
    'PEM file with the certificate of the health server, which serves HTTPS then. Read again when it changes.',
  ),
  'healthz-tls-key': flag(text('path'), '', 'PEM file with the key of that certificate.'),
  'metrics-authentication': flag(
    choice(['none', 'delegated']),
    'none',
    'Who may see metrics beyond the loopback address. delegated: clients bring a bearer token, and the ' +
      'cluster says whose it is (TokenReview) and whether that user may get the path ' +
      '(SubjectAccessReview); needs --metrics-tls-crt. Probes need no token.',
  ),
  'metrics-per-endpoint': flag(
    toggle(),
    false,
    'Count connections, bytes and errors of every endpoint, too. The page grows with the endpoints, and ' +
      'each connection costs a little more.',
  ),
  'authentication-kubeconfig': flag(
    text('path'),
    '',
    'Kubeconfig file with the server that is asked, and the credentials for that. Empty: those of the ' +
      'pod that this runs in.',
    { env: 'KUBECONFIG' },
  ),
});

export type ObserveOptions = FlagValues<typeof OBSERVE_FLAGS>;

/** Names of the flags, for messages about the files. */
export const METRICS_TLS_FLAGS: TlsFlags = {
  key: '--metrics-tls-key',
  crt: '--metrics-tls-crt',
  ca: '',
};
export const HEALTHZ_TLS_FLAGS: TlsFlags = {
  key: '--healthz-tls-key',
  crt: '--healthz-tls-crt',
  ca: '',
};

/** Whether clients on other hosts can reach an address. */
export function isExposed({ host }: HostPort): boolean {
  if (host === 'localhost' || host === '::1') return false;
  return !(isIP(host) === 4 && host.startsWith('127.'));
}

/** Throws a usage error when tokens would be sent where anybody can read them. */
export function checkObserve(
  options: ObserveOptions & { readonly 'metrics-bind-address': HostPort | undefined },
): void {
  const address = options['metrics-bind-address'];
  if (options['metrics-authentication'] === 'none' || address === undefined) return;
  if (!isExposed(address) || options['metrics-tls-crt'] !== '') return;
  throw new KpngError(
    'KPNG_USAGE',
    '--metrics-authentication delegated needs --metrics-tls-crt: tokens are not for the open network',
  );
}
