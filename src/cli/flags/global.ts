import { defaultSocketPath } from '../../admin/socket-path.ts';
import { DEFAULT_BACKOFF, type BackoffPolicy } from '../../util/backoff.ts';
import { type HostPort, isLoopback } from '../../util/host-port.ts';
import { choice, duration, integer, listenAddress, optional, text, toggle } from './kinds.ts';
import { flag, group, type FlagValues, usage } from './table.ts';

/** Flags of every command, allowed anywhere on the line. */
export const GLOBAL_FLAGS = {
  ...group('Log', {
    v: flag(integer(0, 10), 0, { short: 'v', live: true })`
      Log level, as in kube-proxy: 0 errors, warnings and main steps, 1 services, 2 listeners, 3 connections, 4
      events of each connection.`,
    'logging-format': flag<'text' | 'json' | undefined>(choice(['text', 'json']), undefined, {
      defaultText: 'text on a terminal, else json',
    })`
      Format of the log on standard error.`,
  }),
  ...group('Health and metrics', {
    'metrics-bind-address': flag(
      listenAddress,
      { host: '127.0.0.1', port: 10_249 },
      { aliases: ['exportMetrics'] },
    )`
      Listen address for /metrics, /proxyMode and /configz. Empty or 0: not served.`,
    'healthz-bind-address': flag(listenAddress, { host: '0.0.0.0', port: 10_256 })`
      Listen address for /healthz, /livez and /readyz. Empty or 0: not served.`,
    'metrics-tls-crt': flag(text('path'), '')`
      PEM file with the certificate of the metrics server; enables HTTPS. Reloaded when it changes.`,
    'metrics-tls-key': flag(text('path'), '')`PEM file with the key of that certificate.`,
    'healthz-tls-crt': flag(text('path'), '')`
      PEM file with the certificate of the health server; enables HTTPS. Reloaded when it changes.`,
    'healthz-tls-key': flag(text('path'), '')`PEM file with the key of that certificate.`,
    'metrics-authentication': flag(choice(['none', 'delegated']), 'none')`
      Who may read metrics from other hosts. delegated: clients send a bearer token, which the cluster
      authenticates (TokenReview) and authorizes for the path (SubjectAccessReview); needs --metrics-tls-crt.
      Probes need no token.`,
    'metrics-per-endpoint': flag(toggle, false)`
      Also count connections, bytes and errors of each endpoint. The page grows with the number of endpoints.`,
    'metrics-exemplars': flag(toggle, false)`
      In OpenMetrics, name the endpoint that failed last beside each count of failed attempts to connect.`,
    'authentication-kubeconfig': flag(text('path'), '', { env: 'KUBECONFIG' })`
      Kubeconfig file of the cluster that reviews tokens. Empty: the service account of the pod.`,
    'admin-socket': flag(text('path'), defaultSocketPath(), {
      defaultText:
        '/run/kpng-userspace/admin.sock for root, else in $XDG_RUNTIME_DIR; on Windows a named pipe',
    })`
      Unix socket, accessible to its owner only, for the commands of a running proxy. Empty: none.`,
    'status-bind-address': flag(listenAddress, undefined)`
      Listen address for the read-only status page. :8090 listens on loopback only; any client that reaches
      another address can read it. Empty or 0: not served.`,
  }),
  ...group('Process', {
    config: flag(text('path'), '')`
      Configuration file with a KubeProxyConfiguration, a UserspaceProxyConfiguration, or both. Flags and
      environment variables override it. It is reloaded when it changes and on SIGHUP.`,
    'oom-score-adj': flag(optional(integer(-1000, 1000)), undefined)`
      OOM score adjustment of the process on Linux, from -1000 (never killed) to 1000. Lowering it needs the
      capability SYS_RESOURCE. Empty: unchanged.`,
    'error-delay': flag(duration(1), 1000)`
      First delay before the source is retried; later delays grow.`,
    'drain-delay': flag(duration(), 0, { live: true })`
      How long new connections are accepted after the first SIGTERM, SIGINT or SIGQUIT, while /readyz and
      /healthz already fail, so that load balancers stop sending clients.`,
    'drain-timeout': flag(duration(), 5000, { live: true })`
      How long open connections may last after that before they are closed.`,
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
export function checkObserve(globals: GlobalOptions): void {
  const { metricsBindAddress: address, metricsAuthentication, metricsTlsCrt } = globals;
  if (metricsAuthentication === 'none' || address === undefined) return;
  if (!isExposed(address) || metricsTlsCrt !== '') return;
  throw usage(
    '--metrics-authentication delegated needs --metrics-tls-crt: tokens must not cross the network in plaintext',
  );
}
