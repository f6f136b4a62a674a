import type { TlsServers } from '../observe/access.ts';
import type { ServersOptions } from '../observe/servers.ts';
import type { HttpServer } from '../util/http-server.ts';
import { type GlobalOptions, isExposed } from './flags/global.ts';
import { programVersion } from './version.ts';

/**
 * Starts the metrics and health servers, with TLS and authentication according to the flags. Adds to `ends` what to call
 * after they are closed. Rejects with KPNG_TLS_FILE or KPNG_KUBECONFIG before anything is served.
 */
export async function observeServers(
  options: ServersOptions,
  globals: GlobalOptions,
  ends: (() => void)[],
): Promise<HttpServer> {
  const { metricsAddress } = options;
  const [metricsTls, healthTls] = await Promise.all([
    tlsFor('metrics', 'metrics', options, globals),
    tlsFor('health', 'healthz', options, globals),
  ]);
  const isDelegated = globals.metricsAuthentication === 'delegated';
  const guard =
    isDelegated && metricsAddress !== undefined && isExposed(metricsAddress)
      ? await guardFor(options, globals)
      : undefined;
  for (const each of [guard, metricsTls, healthTls]) if (each) ends.push(() => each.close());
  const { startServers } = await import('../observe/servers.ts');
  const secure = { metrics: metricsTls?.create, health: healthTls?.create };
  return startServers({ ...options, secure, guard: guard?.check });
}

/** `prefix`: of the flags for the files. Undefined without files; then no TLS code is loaded. */
async function tlsFor(
  name: string,
  prefix: 'metrics' | 'healthz',
  { log, clock }: ServersOptions,
  globals: GlobalOptions,
): Promise<TlsServers | undefined> {
  const files = { crt: globals[`${prefix}TlsCrt`], key: globals[`${prefix}TlsKey`] };
  if (files.crt === '' && files.key === '') return undefined;
  const flags = { crt: `--${prefix}-tls-crt`, key: `--${prefix}-tls-key`, ca: '' };
  const { tlsServers } = await import('../observe/access.ts');
  return tlsServers({ name, files, flags, clock, log });
}

/** Access control for metrics, with the connections for its reviews. */
async function guardFor({ metrics, log, clock }: ServersOptions, globals: GlobalOptions) {
  const [{ ApiAccess }, { KubeApi }, { DEFAULT_KUBE_LIMITS }, { Reviews, REVIEW_LIMITS }, guard] =
    await Promise.all([
      import('../kube/access.ts'),
      import('../kube/api.ts'),
      import('../kube/limits.ts'),
      import('../kube/reviews.ts'),
      import('../observe/access.ts'),
    ]);
  const { responseTimeoutMs } = REVIEW_LIMITS;
  const limits = {
    ...DEFAULT_KUBE_LIMITS,
    responseTimeoutMs,
    credentialsTimeoutMs: responseTimeoutMs,
  };
  const access = await ApiAccess.open({
    kubeconfig: globals.authenticationKubeconfig,
    server: '',
    env: process.env,
    limits,
    clock,
  });
  const userAgent = `kpng-userspace/${programVersion()} (${process.platform}/${process.arch})`;
  const reviews = new Reviews(new KubeApi(access, userAgent));
  const review = (token: string, path: string) => reviews.review(token, path);
  const check = guard.guardPages({ review, metrics, log, clock });
  return { check, close: () => access.close() };
}
