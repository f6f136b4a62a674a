import type { Cluster, KubeConfig } from '@kubernetes/client-node';
import { access } from 'node:fs/promises';
import { isIPv6 } from 'node:net';
import { delimiter, dirname } from 'node:path';
import { KpngError } from '../errors.ts';
import { fileErrorText } from '../util/file-error.ts';
import { readKubeconfig, type ExtraHeaders } from './kubeconfig-file.ts';
import { loadKubeConfigClass } from './light-config.ts';
import { proxyFromEnvironment } from './proxy-env.ts';

export interface ConfigOptions {
  /** Path of a kubeconfig file, or several as in KUBECONFIG. Empty: see `loadConfig`. */
  readonly kubeconfig: string;
  /** URL of the server, in place of the configured one. Empty: that one. */
  readonly server: string;
  /** Environment variables, for proxies and for what a pod finds there. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** What stands before the paths of a pod's token and authority. Default: nothing. */
  readonly podRoot?: string;
}

/** How to reach a server, and as whom. */
export interface ApiConfig {
  /** Where it was read from, for people: a path, `in-cluster`, or `--server`. */
  readonly origin: string;
  readonly server: URL;
  /** Name of the context; empty when there are no contexts. */
  readonly context: string;
  /** URL of a proxy. */
  readonly proxy: string | undefined;
  readonly kubeConfig: KubeConfig;
  readonly extraHeaders: ExtraHeaders;
}

/**
 * Reads the configuration: of the kubeconfig, or without one for the server that is named, or else that
 * of the pod that this runs in. As kpng does, it does not look for `~/.kube/config`. Throws
 * KPNG_KUBECONFIG.
 */
export async function loadConfig(options: ConfigOptions): Promise<ApiConfig> {
  const { kubeconfig, server } = options;
  const files = await filesOf(kubeconfig);
  const origin = files.length > 0 ? kubeconfig : server === '' ? 'in-cluster' : '--server';
  try {
    const Config = await loadKubeConfigClass();
    const config = new Config();
    const extraHeaders = new Map<string, ExtraHeaders>();
    if (files.length > 0) await readFiles(config, extraHeaders, files, () => new Config());
    else if (server !== '') config.loadFromClusterAndUser(clusterAt(server), { name: '' });
    else loadFromPod(config, options);
    return finish(origin, config, extraHeaders, options);
  } catch (cause) {
    if (cause instanceof KpngError) throw cause;
    throw wrong(origin, fileErrorText(cause), cause);
  }
}

/** A path may have the delimiter in it; so it is one file if there is such a file. */
async function filesOf(kubeconfig: string): Promise<string[]> {
  const parts = kubeconfig.split(delimiter).filter((path) => path !== '');
  if (parts.length < 2) return parts;
  const isOne = await access(kubeconfig).then(
    () => true,
    () => false,
  );
  return isOne ? [kubeconfig] : parts;
}

/** As kubectl merges files: what an earlier one says counts. */
async function readFiles(
  config: KubeConfig,
  extraHeaders: Map<string, ExtraHeaders>,
  files: readonly string[],
  empty: () => KubeConfig,
): Promise<void> {
  for (const file of files) {
    const read = await readKubeconfig(file);
    const one = empty();
    one.loadFromString(read.config);
    one.makePathsAbsolute(dirname(file));
    config.currentContext = config.currentContext || one.currentContext;
    const isNew = (names: readonly { name: string }[]) => (entry: { name: string }) =>
      !names.some(({ name }) => name === entry.name);
    config.clusters.push(...one.clusters.filter(isNew(config.clusters)));
    config.contexts.push(...one.contexts.filter(isNew(config.contexts)));
    for (const user of one.users.filter(isNew(config.users))) {
      config.users.push(user);
      extraHeaders.set(user.name, read.extraHeaders.get(user.name) ?? {});
    }
  }
}

function loadFromPod(config: KubeConfig, { env, podRoot }: ConfigOptions): void {
  const host = env['KUBERNETES_SERVICE_HOST'] ?? '';
  const port = env['KUBERNETES_SERVICE_PORT'] ?? '';
  if (host === '' || port === '') {
    throw new Error(
      'neither --kubeconfig, KUBECONFIG nor --server is given, and this is no pod of a cluster ' +
        '(KUBERNETES_SERVICE_HOST is not set)',
    );
  }
  config.loadFromCluster(podRoot);
  // KubeConfig takes some ports for those of plain HTTP, and has the environment of the process only.
  const server = `https://${isIPv6(host) ? `[${host}]` : host}:${port}`;
  config.clusters = config.clusters.map((cluster) => ({ ...cluster, server }));
}

function finish(
  origin: string,
  config: KubeConfig,
  extraHeaders: ReadonlyMap<string, ExtraHeaders>,
  { server: override, env }: ConfigOptions,
): ApiConfig {
  const context = config.currentContext ?? '';
  if (context !== '' && config.getContextObject(context) === null) {
    throw new Error(`there is no context ${JSON.stringify(context)}, which is the current one`);
  }
  // A file without contexts may still say everything if it has but one cluster.
  const cluster = config.getCurrentCluster() ?? (context === '' ? only(config.clusters) : null);
  if (cluster === null && override === '') {
    throw new Error(
      context === ''
        ? 'there is no current context'
        : `there is no cluster ${JSON.stringify(config.getContextObject(context)?.cluster)}`,
    );
  }
  const used = cluster ?? clusterAt(override);
  const user = config.getCurrentUser();
  const server = serverUrl(override || used.server);
  const proxy = used.proxyUrl || proxyFromEnvironment(server, env);
  config.loadFromClusterAndUser(
    {
      ...used,
      ...(proxy !== undefined && { proxyUrl: proxy }),
      server: server.href,
      // KubeConfig refuses plain HTTP unless certificates need not be verified, though there are none.
      skipTLSVerify: used.skipTLSVerify || server.protocol === 'http:',
    },
    user ?? { name: '' },
  );
  const headers = extraHeaders.get(user?.name ?? '') ?? {};
  // The others are names that KubeConfig makes up.
  const named = origin === 'in-cluster' || origin === '--server' ? '' : context;
  return { origin, server, context: named, proxy, kubeConfig: config, extraHeaders: headers };
}

function only<T>(items: readonly T[]): T | null {
  return items.length === 1 ? (items[0] ?? null) : null;
}

function clusterAt(server: string): Cluster {
  return { name: 'server', server, skipTLSVerify: false };
}

function serverUrl(text: string): URL {
  // As in client-go, an address alone is one of plain HTTP.
  const url = URL.parse(text.includes('://') ? text : `http://${text}`);
  if (url !== null && (url.protocol === 'http:' || url.protocol === 'https:')) return url;
  throw new Error(`${JSON.stringify(text)} is not the URL of a server`);
}

function wrong(origin: string, problem: string, cause: unknown): KpngError {
  return new KpngError('KPNG_KUBECONFIG', `Kubernetes configuration (${origin}): ${problem}`, {
    cause,
  });
}
