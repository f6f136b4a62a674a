import type { Cluster, KubeConfig, User } from '@kubernetes/client-node';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { BlockList, isIP, isIPv6 } from 'node:net';
import { delimiter, dirname } from 'node:path';
import { KpngError } from '../errors.ts';
import { nameList } from '../util/suggest.ts';
import { fileErrorText } from '../util/read-content.ts';
import { readKubeconfig, type ExtraHeaders } from './kubeconfig-file.ts';

export interface ConfigOptions {
  /** Path of a kubeconfig file, or several as in KUBECONFIG. Empty: see `loadConfig`. */
  readonly kubeconfig: string;
  /** URL of the server; overrides the configured one unless empty. */
  readonly server: string;
  /** Environment variables, for proxies and for pods. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Prefix for the paths of a pod's token and CA. Default: none. */
  readonly podRoot?: string;
}

/** The credentials: KubeConfig of the library, or an equivalent that does not need the library. */
export type Credentials = Pick<KubeConfig, 'applyToHTTPSOptions'>;

/** The address of a server, and the credentials. */
export interface ApiConfig {
  /** Its origin, for messages: a path, `in-cluster`, or `--server`. */
  readonly origin: string;
  readonly server: URL;
  /** Name of the context; empty when there are no contexts. */
  readonly context: string;
  readonly proxy: string | undefined;
  /** Name of the user in the kubeconfig, or empty. */
  readonly user: string;
  readonly credentials: Credentials;
  readonly extraHeaders: ExtraHeaders;
}

/**
 * Reads the configuration: from the kubeconfig, else for the given server, else from the pod's service account. As in
 * kpng, `~/.kube/config` is not used. Throws KPNG_KUBECONFIG.
 */
export async function loadConfig(options: ConfigOptions): Promise<ApiConfig> {
  const { kubeconfig, server } = options;
  const files = filesOf(kubeconfig);
  const origin = files.length > 0 ? kubeconfig : server === '' ? 'in-cluster' : '--server';
  try {
    return files.length > 0
      ? await fromFiles(origin, files, options)
      : await withoutFiles(origin, options);
  } catch (cause) {
    if (cause instanceof KpngError) throw cause;
    const message = `Kubernetes configuration (${origin}): ${fileErrorText(cause)}`;
    throw new KpngError('KPNG_KUBECONFIG', message, { cause });
  }
}

/** A path may contain the delimiter, so an existing file takes precedence. */
function filesOf(kubeconfig: string): string[] {
  const parts = kubeconfig.split(delimiter).filter((path) => path !== '');
  if (parts.length < 2) return parts;
  return existsSync(kubeconfig) ? [kubeconfig] : parts;
}

/** As kubectl merges files: the first value counts. */
async function fromFiles(
  origin: string,
  files: readonly string[],
  { server: override, env }: ConfigOptions,
): Promise<ApiConfig> {
  const { KubeConfig } = await import('@kubernetes/client-node');
  const config = new KubeConfig();
  const extraHeaders = new Map<string, ExtraHeaders>();
  for (const file of files) {
    const read = await readKubeconfig(file);
    const one = new KubeConfig();
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
  const context = config.currentContext ?? '';
  if (context !== '' && config.getContextObject(context) === null) {
    const problem = `there is no context ${JSON.stringify(context)}, which is the current one`;
    throw new Error(`${problem}; ${contextsOf(config)}`);
  }
  // A file without contexts is sufficient if it has a single cluster.
  const [first = null, ...others] = context === '' ? config.clusters : [];
  const cluster = config.getCurrentCluster() ?? (others.length === 0 ? first : null);
  if (cluster === null && override === '') {
    throw new Error(
      context === ''
        ? `there is no current context; ${contextsOf(config)}`
        : `there is no cluster ${JSON.stringify(config.getContextObject(context)?.cluster)}`,
    );
  }
  const user = config.getCurrentUser() ?? { name: '' };
  const server = serverUrl(override || (cluster?.server ?? ''));
  const proxy = cluster?.proxyUrl || proxyFromEnvironment(server, env);
  return {
    origin,
    server,
    context,
    proxy,
    user: user.name,
    credentials: await libraryCredentials(server, proxy, cluster ?? {}, user),
    extraHeaders: extraHeaders.get(user.name) ?? {},
  };
}

/** The possible names of current-context. */
function contextsOf({ contexts }: KubeConfig): string {
  if (contexts.length === 0) return 'the kubeconfig has no contexts; add one, or use --server';
  const names = nameList(contexts.map(({ name }) => name));
  return `set current-context to one of ${names} (kubectl config use-context NAME)`;
}

/** Loads the whole library, of which KubeConfig is a small part (docs/explanation/decisions.md). */
async function libraryCredentials(
  server: URL,
  proxy: string | undefined,
  cluster: Partial<Cluster>,
  user: User,
): Promise<Credentials> {
  const { KubeConfig } = await import('@kubernetes/client-node');
  const config = new KubeConfig();
  config.loadFromClusterAndUser(
    {
      name: 'server',
      ...cluster,
      ...(proxy !== undefined && { proxyUrl: proxy }),
      server: server.href,
      // KubeConfig refuses plain HTTP unless certificates need not be verified, although there are none.
      skipTLSVerify: cluster.skipTLSVerify === true || server.protocol === 'http:',
    },
    user,
  );
  return config;
}

/** The pod's service account, or no credentials; only proxies need the library. */
async function withoutFiles(origin: string, options: ConfigOptions): Promise<ApiConfig> {
  const { env, podRoot = '' } = options;
  const server = serverUrl(options.server || podServer(env));
  const proxy = proxyFromEnvironment(server, env);
  const ofPod = (name: string): string => `${podRoot}${SERVICE_ACCOUNT}/${name}`;
  const [caFile, tokenFile] = options.server === '' ? [ofPod('ca.crt'), ofPod('token')] : [];
  let credentials: Credentials;
  if (proxy !== undefined) {
    const authProvider = { name: 'tokenFile', config: { tokenFile } };
    const user = { name: '', ...(tokenFile !== undefined && { authProvider }) };
    credentials = await libraryCredentials(
      server,
      proxy,
      caFile === undefined ? {} : { caFile },
      user,
    );
  } else {
    credentials = {
      async applyToHTTPSOptions(request) {
        if (caFile === undefined || tokenFile === undefined) return;
        const [ca, token] = await Promise.all([readFile(caFile), readFile(tokenFile, 'utf8')]);
        Object.assign(request, { ca, headers: { Authorization: `Bearer ${token}` } });
      },
    };
  }
  return { origin, server, context: '', proxy, user: '', credentials, extraHeaders: {} };
}

const SERVICE_ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount';

function podServer(env: ConfigOptions['env']): string {
  const host = env['KUBERNETES_SERVICE_HOST'] ?? '';
  const port = env['KUBERNETES_SERVICE_PORT'] ?? '';
  if (host !== '' && port !== '') return `https://${isIPv6(host) ? `[${host}]` : host}:${port}`;
  throw new Error(
    'neither --kubeconfig, KUBECONFIG nor --server is given, and this process does not run in a pod ' +
      '(KUBERNETES_SERVICE_HOST is not set)',
  );
}

function serverUrl(text: string): URL {
  // As in client-go, an address without a scheme is plain HTTP.
  const url = URL.parse(text.includes('://') ? text : `http://${text}`);
  if (url !== null && (url.protocol === 'http:' || url.protocol === 'https:')) return url;
  throw new Error(`${JSON.stringify(text)} is not the URL of a server`);
}

/**
 * The proxy for a server according to the environment, by Go's rules: `HTTPS_PROXY` or `HTTP_PROXY` depending on the
 * scheme, in either case; `NO_PROXY` lists hosts, domains, addresses and networks to reach directly; loopback is
 * always direct. Undefined: none.
 */
export function proxyFromEnvironment(server: URL, env: ConfigOptions['env']): string | undefined {
  const scheme = server.protocol === 'https:' ? 'https' : 'http';
  const proxy = env[`${scheme.toUpperCase()}_PROXY`] ?? env[`${scheme}_proxy`] ?? '';
  if (proxy === '') return undefined;
  const host = server.hostname.toLowerCase().replace(/^\[(.*)\]$/, '$1');
  if (host === 'localhost' || check(LOOPBACK, host)) return undefined;
  const port = server.port === '' ? { http: '80', https: '443' }[scheme] : server.port;
  const exempt = (env['NO_PROXY'] ?? env['no_proxy'] ?? '')
    .split(',')
    .map((entry) => entry.trim().toLowerCase())
    .filter((entry) => entry !== '');
  if (exempt.some((entry) => covers(entry, host, port))) return undefined;
  return proxy.includes('://') ? proxy : `http://${proxy}`;
}

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet('127.0.0.0', 8);
LOOPBACK.addAddress('::1', 'ipv6');

function covers(entry: string, host: string, port: string): boolean {
  if (entry === '*') return true;
  const [, network = '', prefix] = /^(.*)\/(\d+)$/.exec(entry) ?? [];
  const family = isIP(network);
  if (prefix !== undefined) {
    if (family === 0 || Number(prefix) > (family === 4 ? 32 : 128)) return false;
    const list = new BlockList();
    list.addSubnet(network, Number(prefix), family === 4 ? 'ipv4' : 'ipv6');
    return check(list, host);
  }
  if (isIP(entry) !== 0) return entry === host;
  const [, name = entry, only] = /^(.*?):(\d+)$/.exec(entry) ?? [];
  if (only !== undefined && only !== port) return false;
  const bare = name.replace(/^\*?\./, '').replace(/^\[(.*)\]$/, '$1');
  // A leading dot covers subdomains only.
  return (host === bare && bare === name) || host.endsWith(`.${bare}`) || host === name;
}

function check(list: BlockList, host: string): boolean {
  const family = isIP(host);
  return family !== 0 && list.check(host, family === 4 ? 'ipv4' : 'ipv6');
}
