import { defaultSocketPath } from '../../admin/socket-path.ts';
import { DEFAULT_BACKOFF, type BackoffPolicy } from '../../util/backoff.ts';
import { type HostPort, isLoopback } from '../../util/host-port.ts';
import { choice, duration, integer, listenAddress, optional, text, toggle } from './kinds.ts';
import { flag, group, type FlagValues } from './table.ts';
import { usage } from './read.ts';

const HEALTH = 'Health and metrics';
const LOG = 'Log';
const PROCESS = 'Process';

/** Flags of every command, allowed anywhere on the line. */
export const GLOBAL_FLAGS = {
  ...group(LOG, {
    v: flag(integer(0, 10), 0, {
      help:
        'Log level, as in kube-proxy: 0 errors, warnings and main steps, 1 services, 2 listeners, ' +
        '3 connections, 4 events of each connection.',
      short: 'v',
      live: true,
    }),
    'logging-format': flag<'text' | 'json' | undefined>(choice(['text', 'json']), undefined, {
      help: 'Format of the log on standard error.',
      defaultText: 'text on a terminal, else json',
    }),
  }),
  ...group(HEALTH, {
    'metrics-bind-address': flag<HostPort | undefined>(
      listenAddress(),
      { host: '127.0.0.1', port: 10_249 },
      {
        help: 'Listen address for /metrics, /proxyMode and /configz. Empty or 0: not served.',
        aliases: ['exportMetrics'],
      },
    ),
    'healthz-bind-address': flag<HostPort | undefined>(
      listenAddress(),
      { host: '0.0.0.0', port: 10_256 },
      { help: 'Listen address for /healthz, /livez and /readyz. Empty or 0: not served.' },
    ),
    'metrics-tls-crt': flag(text('path'), '', {
      help: 'PEM file with the certificate of the metrics server; enables HTTPS. Reloaded when it changes.',
    }),
    'metrics-tls-key': flag(text('path'), '', {
      help: 'PEM file with the key of that certificate.',
    }),
    'healthz-tls-crt': flag(text('path'), '', {
      help: 'PEM file with the certificate of the health server; enables HTTPS. Reloaded when it changes.',
    }),
    'healthz-tls-key': flag(text('path'), '', {
      help: 'PEM file with the key of that certificate.',
    }),
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
  }),
  ...group(PROCESS, {
    config: flag(text('path'), '', {
      help:
        'Configuration file with a KubeProxyConfiguration, a UserspaceProxyConfiguration, or both. Flags and ' +
        'environment variables override it. It is reloaded when it changes and on SIGHUP.',
    }),
    'oom-score-adj': flag<number | undefined>(optional(integer(-1000, 1000)), undefined, {
      help:
        'OOM score adjustment of the process on Linux, from -1000 (never killed) to 1000. Lowering it ' +
        'needs the capability SYS_RESOURCE. Empty: unchanged.',
    }),
  }),
  ...group(HEALTH, {
    'admin-socket': flag(text('path'), defaultSocketPath(), {
      help: 'Unix socket, accessible to its owner only, for the commands of a running proxy. Empty: none.',
      defaultText:
        '/run/kpng-userspace/admin.sock for root, else in $XDG_RUNTIME_DIR; on Windows a named pipe',
    }),
    'status-bind-address': flag<HostPort | undefined>(listenAddress(), undefined, {
      help:
        'Listen address for the read-only status page. :8090 listens on loopback only; any client that reaches ' +
        'another address can read it. Empty or 0: not served.',
    }),
  }),
  ...group(PROCESS, {
    'error-delay': flag(duration(1), 1000, {
      help: 'First delay before the source is retried; later delays grow.',
    }),
    'drain-delay': flag(duration(), 0, {
      help:
        'How long new connections are accepted after the first SIGTERM, SIGINT or SIGQUIT, while /readyz and /healthz ' +
        'already fail, so that load balancers stop sending clients.',
      live: true,
    }),
    'drain-timeout': flag(duration(), 5000, {
      help: 'How long open connections may last after that before they are closed.',
      live: true,
    }),
  }),
};

export type GlobalOptions = FlagValues<typeof GLOBAL_FLAGS>;

export function backoffFrom(globals: GlobalOptions): BackoffPolicy {
  const initialMs = globals.errorDelay;
  return { ...DEFAULT_BACKOFF, initialMs, maxMs: Math.max(DEFAULT_BACKOFF.maxMs, initialMs) };
}

/** Whether clients on other hosts can reach an address. */
export function isExposed({ host }: HostPort): boolean {
  return host !== 'localhost' && !isLoopback(host);
}

/** Throws a usage error if tokens would be sent over an unencrypted connection. */
export function checkObserve({
  metricsBindAddress: address,
  metricsAuthentication,
  metricsTlsCrt,
}: GlobalOptions): void {
  if (metricsAuthentication === 'none' || address === undefined) return;
  if (!isExposed(address) || metricsTlsCrt !== '') return;
  throw usage(
    '--metrics-authentication delegated needs --metrics-tls-crt: tokens must not cross the network in plaintext',
  );
}
