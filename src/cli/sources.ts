import { DEFAULT_API, parseTarget } from '../client/target.ts';
import { compileGlobs } from '../kube/globs.ts';
import { DEFAULT_NODE_LABELS, serviceSelector } from '../kube/resource.ts';
import { defineGlobalSource, defineSource, examples, paragraphs } from './command.ts';
import { backoffFrom, type GlobalOptions } from './flags/global.ts';
import { list, path, size, text, trimmed } from './flags/kinds.ts';
import { flag, type FlagValues, group, usage } from './flags/table.ts';
import { userAgent } from './version.ts';

/** A comma list of patterns; commas within braces belong to the pattern. May be repeated. */
const globs = list('patterns', (pattern) => void compileGlobs([pattern]), splitPatterns);

export const kubeSource = defineGlobalSource({
  word: 'kube',
  summary: 'Services, EndpointSlices and Nodes, watched in a Kubernetes API',
  description: paragraphs`
    Uses the kubeconfig of --kubeconfig or KUBECONFIG, else the service account of the pod; not ~/.kube/config.
    docs/reference/kubernetes.md lists the permissions that the account needs, and failures.

    While the API is unreachable, the last known state is served and the API is retried.`,
  examples: examples`
    kube --kubeconfig admin.conf to-local to-userspace # proxies the services of a cluster on this node
    kube --server http://127.0.0.1:8001 to-json --node-name node-1 # prints the local view of node-1, through kubectl proxy`,
  flags: group('Source: kube', {
    kubeconfig: flag(text('path'), '', { env: 'KUBECONFIG' })`
      Kubeconfig file with the server and the credentials; several are separated as in KUBECONFIG.`,
    server: flag(text('url'), '', { aliases: ['master'] })`
      URL of the API server, in place of the one of the kubeconfig.`,
    'service-proxy-name': flag(text('name'), '')`
      Serve the Services whose label service.kubernetes.io/service-proxy-name has this value. Without it: those
      that have no such label.`,
    'with-service-labels': flag(globs, [])`
      Labels of Services to pass on: patterns for their keys, with * ? [a-z] and {x,y}.`,
    'with-service-annotations': flag(globs, ['kpng-userspace.io/*'])`
      Annotations of Services to pass on, by the same patterns.`,
    'with-node-labels': flag(globs, DEFAULT_NODE_LABELS, {
      defaultText: 'host name, zone and region',
    })`
      Labels of Nodes to pass on, by the same patterns. Zones are always known.`,
    'with-node-annotations': flag(globs, [])`
      Annotations of Nodes to pass on, by the same patterns.`,
  }),
  read(values) {
    serviceSelector(values.serviceProxyName);
    return values;
  },
  async start({ kubeconfig, server, ...values }, { globals, nodeName, setPodNetworks }) {
    const { openKubeSource } = await import('../kube/source.ts');
    return openKubeSource({
      config: { kubeconfig, server, env: process.env },
      selection: {
        proxyName: values.serviceProxyName,
        serviceLabels: values.withServiceLabels,
        serviceAnnotations: values.withServiceAnnotations,
        nodeLabels: values.withNodeLabels,
        nodeAnnotations: values.withNodeAnnotations,
      },
      nodeName,
      onPodNetworks: setPodNetworks,
      userAgent: userAgent(),
      backoff: backoffFrom(globals),
    });
  },
});

function splitPatterns(given: string): string[] {
  let depth = 0;
  const lines = given.replaceAll(/\\.|[{},]/gs, (token) => {
    if (token === '{') depth += 1;
    if (token === '}') depth -= 1;
    return token === ',' && depth <= 0 ? '\n' : token;
  });
  return trimmed(lines, '\n');
}

/** Flags of the sources that are clients of a kpng server. */
const API_FLAGS = group('Source: api, local', {
  api: flag(text('target'), DEFAULT_API)`
    The server: host:port, dns:///host:port, unix:path or unix:///absolute/path.`,
  'api-client-tls-crt': flag(text('path'), '', { aliases: ['tls-crt'] })`
    PEM file with the client certificate.`,
  'api-client-tls-key': flag(text('path'), '', { aliases: ['tls-key'] })`
    PEM file with the key of that certificate.`,
  'api-client-tls-ca': flag(text('path'), '', { aliases: ['tls-ca'] })`
    PEM file with the trusted authorities, in place of those of the system.`,
  'max-msg-size': flag(size(1024, 2 ** 31 - 1), 4 * 1024 * 1024)`
    Largest message accepted from the server.`,
});

/** Parses the settings of the flags; throws a usage error. */
function apiOptions(values: FlagValues<typeof API_FLAGS>) {
  const { apiClientTlsCrt: crt, apiClientTlsKey: key, apiClientTlsCa: ca } = values;
  if ((crt === '') !== (key === '')) {
    throw usage('--api-client-tls-crt and --api-client-tls-key: give both or neither');
  }
  const maxMessageSize = values.maxMsgSize;
  return { target: parseTarget(values.api), tls: { crt, key, ca }, maxMessageSize };
}

/** Options of both clients. Rejects with KPNG_TLS_FILE. */
async function clientOptions(
  { tls, ...options }: ReturnType<typeof apiOptions>,
  globals: GlobalOptions,
) {
  const { readTls } = await import('../util/tls-files.ts');
  const renewTls = () => readTls(tls);
  return { ...options, tls: await renewTls(), renewTls, backoff: backoffFrom(globals) };
}

export const apiSource = defineGlobalSource({
  word: 'api',
  summary: 'Services, endpoints and nodes of the cluster, from the gRPC API of a kpng server',
  description: paragraphs`
    Watches the global API of a server started with \`kpng ... to-api\` and derives the local view of the node
    from it. While the server is unreachable, the last known state is served and the connection is retried with
    growing delays.

    TLS is used when one of the three TLS files is given.`,
  examples: examples`
    api --api unix:///k8s/proxy.sock to-local to-userspace # proxies beside a kpng server in the same pod
    api --api kpng.example:12090 to-file --output state.yaml # saves the state of a kpng server`,
  flags: API_FLAGS,
  read: apiOptions,
  async start(options, { globals }) {
    const { globalClient } = await import('../client/client.ts');
    return globalClient(await clientOptions(options, globals));
  },
});

export const localSource = defineSource({
  word: 'local',
  summary: 'The local view of this node, from the gRPC API of a kpng server',
  description: paragraphs`
    Watches a server started with \`kpng ... to-api\`. While the server is unreachable, the last known state is
    served and the connection is retried with growing delays.

    TLS is used when one of the three TLS files is given.`,
  examples: examples`
    local --api unix:///k8s/proxy.sock to-userspace # proxies beside a kpng server in the same pod
    local to-json | jq .Service.Name # prints the names of the services of this node`,
  flags: API_FLAGS,
  read: apiOptions,
  async start(options, { nodeName, globals, setPodNetworks }) {
    const { KpngClient } = await import('../client/client.ts');
    const clusterScope = setPodNetworks !== undefined;
    return new KpngClient({ ...(await clientOptions(options, globals)), nodeName, clusterScope });
  },
});

export const fileSource = defineGlobalSource({
  word: 'file',
  summary: 'Services, endpoints and nodes from a YAML or JSON state file, reloaded when it changes',
  description: paragraphs`
    The file has the format of \`kpng ... to-file\`: the global state, with the lists services, endpoints and
    nodes, from which the local view of the node is derived.

    A file with errors changes nothing: the errors are logged and the last good state is served.`,
  examples: examples`
    file --input state.yaml to-local to-userspace # proxies the services of state.yaml
    file -i state.yaml to-json --node-name node-1 # prints the local view of node-1`,
  flags: group('Source: file', {
    input: flag(path, 'globalv1-state.yaml', { short: 'i' })`The state file.`,
  }),
  async start({ input }) {
    const { fileSource } = await import('../file/source.ts');
    return fileSource({ path: input });
  },
});
