import { DEFAULT_SERVER_LIMITS } from '../../server/limits.ts';
import { DEFAULT_LISTEN, parseListen } from '../../server/listen-address.ts';
import { defineGlobalSink, examples, paragraphs } from '../command.ts';
import { backoffFrom } from '../flags/global.ts';
import { integer, path, size, text, toggle } from '../flags/kinds.ts';
import { flag, group, usage } from '../flags/table.ts';

export const toApi = defineGlobalSink({
  word: 'to-api',
  summary: 'Serve the state over gRPC, to backends on every node and to other servers',
  description: paragraphs`
    Serves both APIs of kpng: the local one, in which each client names its node and gets the local view of it,
    and the global one. Clients of kpng work as well as those of this program.

    It listens on loopback only by default. Without TLS, every client that can connect can read the state of the
    cluster.`,
  examples: examples`
    file -i state.yaml to-api # serves a state file to backends on this host
    api --api kpng.example:12090 to-api --listen unix:///run/kpng/proxy.sock # relays the state of another server to the backends of this host`,
  flags: {
    ...group('Sink: to-api', {
      listen: flag(text('address'), DEFAULT_LISTEN)`
        Listen address: tcp://ip:port or unix:///path. tcp://:12090 is every address of the host, tcp4:// and
        tcp6:// only those of one family.`,
      'listen-tls-crt': flag(text('path'), '')`
        PEM file with the certificate of the server. Empty: plaintext. The three TLS files are reloaded when
        they change.`,
      'listen-tls-key': flag(text('path'), '')`PEM file with the key of that certificate.`,
      'listen-tls-ca': flag(text('path'), '')`
        PEM file with authorities. If set, clients need a certificate that one of them has signed.`,
      'local-api': flag(toggle, true)`Serve the local API.`,
      'globalv1-api': flag(toggle, true)`Serve the global API.`,
    }),
    ...group('Limits', {
      'max-watchers': flag(integer(1), DEFAULT_SERVER_LIMITS.maxWatchers)`Concurrent watchers.`,
      'max-api-connections': flag(integer(1), DEFAULT_SERVER_LIMITS.maxConnections)`
        Concurrent connections to the API.`,
      'max-streams': flag(integer(1, 2 ** 31 - 1), DEFAULT_SERVER_LIMITS.maxStreams)`
        Concurrent calls on one connection.`,
      'max-request-size': flag(size(1024, 2 ** 31 - 1), DEFAULT_SERVER_LIMITS.maxMessageSize)`
        Largest message accepted from a client.`,
      'max-history': flag(integer(0), DEFAULT_SERVER_LIMITS.maxHistory)`
        Endpoints of previous states kept in memory for clients that lag behind. Clients that lag further
        restart from scratch.`,
    }),
  },
  read(values) {
    if (!values.localApi && !values.globalv1Api) {
      throw usage('--local-api and --globalv1-api are both off; leave one on');
    }
    const { listenTlsCrt: crt, listenTlsKey: key, listenTlsCa: ca } = values;
    if ((crt === '') !== (key === '') || (ca !== '' && key === '')) {
      throw usage('a server with TLS needs both --listen-tls-crt and --listen-tls-key');
    }
    return {
      listen: parseListen(values.listen),
      tls: { crt, key, ca },
      apis: (['local', 'global'] as const).filter((api) =>
        api === 'local' ? values.localApi : values.globalv1Api,
      ),
      serverLimits: {
        maxWatchers: values.maxWatchers,
        maxConnections: values.maxApiConnections,
        maxStreams: values.maxStreams,
        maxMessageSize: values.maxRequestSize,
        maxHistory: values.maxHistory,
      },
    };
  },
  async start({ tls, serverLimits: limits, ...options }, { store }) {
    const { startApiServer } = await import('../../server/server.ts');
    const server = await startApiServer({ ...options, limits, store, tls });
    return { close: () => server.close(), destroy: async () => server.destroy() };
  },
});

export const toFile = defineGlobalSink({
  word: 'to-file',
  summary: 'Write the state to a YAML file whenever it changes',
  description: paragraphs`
    The file has the format that kpng writes and the source \`file\` reads. It is replaced atomically, at most
    once a second. What Go kpng cannot read is left out, unless --extensions is given.`,
  examples: examples`
    api to-file --output state.yaml # saves the state of a kpng server
    file -i state.yaml to-file -o copy.yaml # writes a state file in full`,
  flags: group('Sink: to-file', {
    output: flag(path, 'global-state.yaml', { short: 'o' })`The file to write.`,
    extensions: flag(toggle, false)`
      Also write what Go kpng cannot read: session affinity, endpoints that serve while they terminate, and
      hints for nodes.`,
  }),
  async start({ output, extensions: extended }, { globals, store }) {
    const { startFileSink } = await import('../../file/sink.ts');
    const sink = startFileSink({ path: output, extended, store, backoff: backoffFrom(globals) });
    return { close: () => sink.close(), destroy: () => sink.close() };
  },
});
