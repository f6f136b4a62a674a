import type { KubeConfig } from '@kubernetes/client-node';
import { createReadStream, existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { isIP, isIPv6 } from 'node:net';
import { delimiter, dirname, isAbsolute, join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import ipaddr from 'ipaddr.js';
import { KpngError } from '../errors.ts';
import { formatBytes } from '../util/bytes.ts';
import { isLoopback } from '../util/host-port.ts';
import { nameList } from '../util/suggest.ts';
import { fileErrorText } from '../util/read-content.ts';
import { hidePasswords } from '../util/terminal-text.ts';
import { parseYaml } from '../util/yaml.ts';
import { isObject, list, object, text, texts, type Json } from './json.ts';

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
}

/**
 * Reads the configuration: from the kubeconfig, else for the given server, else from the pod's service account. As in
 * kpng, `~/.kube/config` is not used. Throws KPNG_KUBECONFIG.
 */
export async function loadConfig(options: ConfigOptions): Promise<ApiConfig> {
  const { kubeconfig, server: override, env } = options;
  const files = filesOf(kubeconfig);
  const origin = files.length > 0 ? kubeconfig : override === '' ? 'in-cluster' : '--server';
  try {
    const found = files.length > 0 ? await fromFiles(files, override) : withoutFiles(options);
    const { context, cluster, userName } = found;
    const server = serverUrl(override || text(cluster['server']));
    const proxy = text(cluster['proxy-url']) || proxyFromEnvironment(server, env);
    const credentials =
      files.length === 0 && proxy === undefined
        ? ownCredentials(found)
        : await libraryCredentials(found, server, proxy);
    return { origin, server, context, proxy, user: userName, credentials };
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

/** The chosen entries, as in a kubeconfig. */
interface Chosen {
  readonly context: string;
  readonly cluster: Json;
  readonly userName: string;
  readonly user: Json;
}

async function fromFiles(files: readonly string[], override: string): Promise<Chosen> {
  const { currentContext, ...entries } = await readKubeconfigs(files);
  const context = entries.context.get(currentContext);
  if (currentContext !== '' && context === undefined) {
    const problem = `there is no context ${JSON.stringify(currentContext)}, which is the current one`;
    throw new Error(`${problem}; ${contextsOf(entries.context)}`);
  }
  // A file without contexts is sufficient if it has a single cluster.
  const [first, ...others] = entries.cluster.values();
  const only = others.length === 0 ? first : undefined;
  const cluster = context === undefined ? only : entries.cluster.get(text(context['cluster']));
  if (cluster === undefined && override === '') {
    throw new Error(
      context === undefined
        ? `there is no current context; ${contextsOf(entries.context)}`
        : `there is no cluster ${JSON.stringify(context['cluster'])}`,
    );
  }
  const name = text(context?.['user']);
  const user = entries.user.get(name);
  const userName = user === undefined ? '' : name;
  return { context: currentContext, cluster: cluster ?? {}, userName, user: user ?? {} };
}

/** The possible names of current-context. */
function contextsOf(contexts: ReadonlyMap<string, Json>): string {
  if (contexts.size === 0) return 'the kubeconfig has no contexts; add one, or use --server';
  const names = nameList([...contexts.keys()]);
  return `set current-context to one of ${names} (kubectl config use-context NAME)`;
}

const SERVICE_ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount';

/** The pod's service account, or no credentials for a given server. */
function withoutFiles({ server, env, podRoot = '' }: ConfigOptions): Chosen {
  const none = { context: '', userName: '', cluster: {}, user: {} };
  if (server !== '') return none;
  const directory = `${podRoot}${SERVICE_ACCOUNT}`;
  const ca = { 'certificate-authority': `${directory}/ca.crt` };
  const cluster = { server: podServer(env), ...ca };
  return { ...none, cluster, user: withTokenFile({ tokenFile: `${directory}/token` }) };
}

/** Those of `withoutFiles`. */
function ownCredentials({ cluster, user }: Chosen): Credentials {
  const files = [text(cluster['certificate-authority']), text(user['tokenFile'])];
  return {
    async applyToHTTPSOptions(request) {
      if (files.includes('')) return;
      const [ca, token] = await Promise.all(files.map((path) => readFile(path, 'utf8')));
      Object.assign(request, { ca, headers: { Authorization: `Bearer ${token}` } });
    },
  };
}

/** Loads the whole library, of which KubeConfig is a small part (docs/explanation/decisions.md). */
async function libraryCredentials(
  { cluster, user }: Chosen,
  server: URL,
  proxy: string | undefined,
): Promise<Credentials> {
  const { KubeConfig } = await import('@kubernetes/client-node');
  const name = 'only';
  const config = new KubeConfig();
  // KubeConfig refuses plain HTTP unless certificates need not be verified, although there are none.
  const plain = server.protocol === 'http:' && { 'insecure-skip-tls-verify': true };
  const complete = { ...cluster, server: server.href, 'proxy-url': proxy, ...plain };
  const content = {
    'current-context': name,
    contexts: [{ name, context: { cluster: name, user: name } }],
    clusters: [{ name, cluster: complete }],
    users: [{ name, user }],
  };
  config.loadFromString(JSON.stringify(content));
  return {
    async applyToHTTPSOptions(request) {
      await config.applyToHTTPSOptions(request);
      request.headers = { ...request.headers, ...headersOf(user) };
    },
  };
}

function podServer(env: ConfigOptions['env']): string {
  const host = env['KUBERNETES_SERVICE_HOST'] ?? '';
  const port = env['KUBERNETES_SERVICE_PORT'] ?? '';
  if (host !== '' && port !== '') return `https://${isIPv6(host) ? `[${host}]` : host}:${port}`;
  throw new Error(
    'neither --kubeconfig, KUBECONFIG nor --server is given, and this process does not run in a pod ' +
      '(KUBERNETES_SERVICE_HOST is not set)',
  );
}

function serverUrl(given: string): URL {
  // As in client-go, an address without a scheme is plain HTTP.
  const url = URL.parse(given.includes('://') ? given : `http://${given}`);
  if (url !== null && (url.protocol === 'http:' || url.protocol === 'https:')) return url;
  throw new Error(`${JSON.stringify(hidePasswords(given))} is not the URL of a server`);
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
  if (host === 'localhost' || isLoopback(host)) return undefined;
  const port = server.port === '' ? { http: '80', https: '443' }[scheme] : server.port;
  const exempt = (env['NO_PROXY'] ?? env['no_proxy'] ?? '')
    .split(',')
    .map((entry) => entry.trim().toLowerCase())
    .filter((entry) => entry !== '');
  if (exempt.some((entry) => covers(entry, host, port))) return undefined;
  return proxy.includes('://') ? proxy : `http://${proxy}`;
}

function covers(entry: string, host: string, port: string): boolean {
  if (entry === '*') return true;
  const [, start = ''] = /^(.*)\/\d+$/.exec(entry) ?? [];
  if (start !== '') {
    if (isIP(host) === 0 || isIP(start) === 0 || !ipaddr.isValidCIDR(entry)) return false;
    const [address, [network, bits]] = [ipaddr.parse(host), ipaddr.parseCIDR(entry)];
    return address.kind() === network.kind() && address.match(network, bits);
  }
  if (isIP(entry) !== 0) return entry === host;
  const [, name = entry, only] = /^(.*?):(\d+)$/.exec(entry) ?? [];
  if (only !== undefined && only !== port) return false;
  const bare = name.replace(/^\*?\./, '').replace(/^\[(.*)\]$/, '$1');
  // A leading dot covers subdomains only.
  return (host === bare && bare === name) || host.endsWith(`.${bare}`) || host === name;
}

const KINDS = ['context', 'cluster', 'user'] as const;

/**
 * Reads kubeconfig files and merges them as kubectl does: the first value counts.
 *
 * Corrects what KubeConfig of @kubernetes/client-node 2.0.1 does differently from kubectl: it does not know `tokenFile`
 * (kubeadm's kube-proxy has it), paths of token files and commands are not relative to the file, programs that fetch
 * credentials get no KUBERNETES_EXEC_INFO, and it has no clear error for an entry that is no object. Throws an Error
 * that says what is wrong.
 */
async function readKubeconfigs(paths: readonly string[]) {
  let currentContext = '';
  const made = (): Map<string, Json> => new Map();
  const entries = { context: made(), cluster: made(), user: made() };
  for (const path of paths) {
    const content = await readYaml(path);
    if (!isObject(content)) throw new Error('it is empty, or not a kubeconfig');
    currentContext ||= text(content['current-context']);
    for (const kind of KINDS) {
      for (const [index, entry] of list(content[`${kind}s`]).entries()) {
        const { name, [kind]: given } = object(entry);
        const value = given ?? {};
        if (typeof name !== 'string' || !isObject(value)) {
          throw new Error(`${kind}s[${index}]: expected a name and a ${kind}`);
        }
        if (!entries[kind].has(name)) entries[kind].set(name, corrected(value, dirname(path)));
      }
    }
  }
  return { currentContext, ...entries };
}

const MAX_BYTES = 1 << 20;
const YAML_LIMITS = { maxDepth: 50, maxAliasedValues: 10_000 };

async function readYaml(path: string): Promise<unknown> {
  // It may be a pipe, whose size is not known.
  const bytes = await buffer(createReadStream(path, { end: MAX_BYTES }));
  if (bytes.length > MAX_BYTES) throw new Error(`it is larger than ${formatBytes(MAX_BYTES)}`);
  const parsed = parseYaml(bytes.toString(), YAML_LIMITS);
  if (!parsed.ok) {
    const before = bytes.toString().slice(0, parsed.problem.offset).split('\n');
    throw new Error(`line ${before.length}: ${parsed.problem.message}`);
  }
  return parsed.documents[0]?.value;
}

const PATHS = ['certificate-authority', 'client-certificate', 'client-key', 'tokenFile'];

/** A cluster or user as KubeConfig understands it. `directory`: that of the file. */
function corrected(entry: Json, directory: string): Json {
  const absolute = (path: string): string => (isAbsolute(path) ? path : join(directory, path));
  const given = PATHS.filter((key) => text(entry[key]) !== '');
  const paths = given.map((key) => [key, absolute(text(entry[key]))] as const);
  const result = withTokenFile({ ...entry, ...Object.fromEntries(paths) });
  const { exec } = entry;
  if (!isObject(exec)) return result;
  const { apiVersion } = exec;
  const info = { kind: 'ExecCredential', apiVersion, spec: { interactive: false } };
  const variable = { name: 'KUBERNETES_EXEC_INFO', value: JSON.stringify(info) };
  const env = [...list(exec['env']), variable];
  const command = text(exec['command']);
  const program = /[/\\]/.test(command) ? absolute(command) : command;
  return { ...result, exec: { ...exec, command: program, env } };
}

/** A user with the name that KubeConfig has for a token file. As in kubectl, it overrides a token. */
function withTokenFile(user: Json): Json {
  const { tokenFile } = user;
  if (text(tokenFile) === '') return user;
  const provider = { name: 'tokenFile', config: { tokenFile } };
  return { ...user, token: undefined, 'auth-provider': provider };
}

/** A user's headers that KubeConfig does not know of. */
function headersOf(user: Json): Record<string, string | string[]> {
  const groups = texts(user['as-groups']);
  const uid = text(user['as-uid']);
  return {
    ...(groups.length > 0 && { 'Impersonate-Group': groups }),
    ...(uid !== '' && { 'Impersonate-Uid': uid }),
  };
}
