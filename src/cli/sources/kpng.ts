import { DEFAULT_API, parseTarget } from '../../client/target.ts';
import type { TlsFlags } from '../../util/tls-files.ts';
import { defineGlobalSource, defineSource } from '../command.ts';
import { backoffFrom, type GlobalOptions } from '../flags/global.ts';
import { size, text } from '../flags/kinds.ts';
import { usage } from '../flags/read.ts';
import { flag, group, type FlagValues } from '../flags/table.ts';

/** Flags of the sources that are clients of a kpng server. */
const API_FLAGS = group('Source: api, local', {
  api: flag(text('target'), DEFAULT_API, {
    help: 'The server: host:port, dns:///host:port, unix:path or unix:///absolute/path.',
  }),
  'api-client-tls-crt': flag(text('path'), '', {
    help: 'PEM file with the client certificate.',
    aliases: ['tls-crt'],
  }),
  'api-client-tls-key': flag(text('path'), '', {
    help: 'PEM file with the key of that certificate.',
    aliases: ['tls-key'],
  }),
  'api-client-tls-ca': flag(text('path'), '', {
    help: 'PEM file with the trusted authorities, in place of those of the system.',
    aliases: ['tls-ca'],
  }),
  'max-msg-size': flag(size(1024, 2 ** 31 - 1), 4 * 1024 * 1024, {
    help: 'Largest message accepted from the server.',
  }),
});

/** Parses the settings of the flags; throws a usage error. */
function apiOptions(values: FlagValues<typeof API_FLAGS>, given: ReadonlyMap<string, string>) {
  const { apiClientTlsCrt: crt, apiClientTlsKey: key, apiClientTlsCa: ca } = values;
  const names = new Set(given.values());
  const isShort = ['--tls-crt', '--tls-key', '--tls-ca'].some((name) => names.has(name));
  // A missing one is named in the same style as the others.
  const nameOf = (part: keyof TlsFlags): string =>
    given.get(`api-client-tls-${part}`) ?? (isShort ? `--tls-${part}` : `--api-client-tls-${part}`);
  /** What set the paths, for messages. */
  const tlsFlags: TlsFlags = { crt: nameOf('crt'), key: nameOf('key'), ca: nameOf('ca') };
  if ((crt === '') !== (key === '')) {
    throw usage(`${tlsFlags.crt} and ${tlsFlags.key}: give both or neither`);
  }
  const maxMessageSize = values.maxMsgSize;
  return { target: parseTarget(values.api), tls: { crt, key, ca }, tlsFlags, maxMessageSize };
}

/** Options of both clients. Rejects with KPNG_TLS_FILE. */
async function clientOptions(
  { target, tls, tlsFlags, maxMessageSize }: ReturnType<typeof apiOptions>,
  globals: GlobalOptions,
) {
  const { readTls } = await import('../../util/tls-files.ts');
  const renewTls = () => readTls(tls, tlsFlags);
  return { target, tls: await renewTls(), renewTls, maxMessageSize, backoff: backoffFrom(globals) };
}

export const apiSource = defineGlobalSource({
  word: 'api',
  summary: 'Services, endpoints and nodes of the cluster, from the gRPC API of a kpng server',
  description: [
    'Watches the global API of a server started with `kpng ... to-api` and derives the local view of the node ' +
      'from it. While the server is unreachable, the last known state is served and the connection is ' +
      'retried with growing delays.',
    'TLS is used when one of the three TLS files is given.',
  ],
  examples: {
    'api --api unix:///k8s/proxy.sock to-local to-userspace':
      'proxies beside a kpng server in the same pod',
    'api --api kpng.example:12090 to-file --output state.yaml': 'saves the state of a kpng server',
  },
  flags: API_FLAGS,
  read: apiOptions,
  async start(options, { globals }) {
    const { GlobalClient } = await import('../../client/global-client.ts');
    return new GlobalClient(await clientOptions(options, globals));
  },
});

export const localSource = defineSource({
  word: 'local',
  summary: 'The local view of this node, from the gRPC API of a kpng server',
  description: [
    'Watches a server started with `kpng ... to-api`. While the server is unreachable, the last known state ' +
      'is served and the connection is retried with growing delays.',
    'TLS is used when one of the three TLS files is given.',
  ],
  examples: {
    'local --api unix:///k8s/proxy.sock to-userspace':
      'proxies beside a kpng server in the same pod',
    'local to-json | jq .Service.Name': 'prints the names of the services of this node',
  },
  flags: API_FLAGS,
  read: apiOptions,
  async start(options, { nodeName, globals, setPodNetworks }) {
    const { KpngClient } = await import('../../client/client.ts');
    const clusterScope = setPodNetworks !== undefined;
    return new KpngClient({ ...(await clientOptions(options, globals)), nodeName, clusterScope });
  },
});
