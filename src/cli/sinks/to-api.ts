import { DEFAULT_SERVER_LIMITS } from '../../server/limits.ts';
import { DEFAULT_LISTEN, parseListen } from '../../server/listen-address.ts';
import { defineGlobalSink } from '../command.ts';
import { integer, size, text, toggle } from '../flags/kinds.ts';
import { usage } from '../flags/read.ts';
import { flag, group } from '../flags/table.ts';
import { collectOnceSynced, keepHeapSmall } from './small-heap.ts';

export const toApi = defineGlobalSink({
  word: 'to-api',
  summary: 'Serve the state over gRPC, to backends on every node and to other servers',
  description: [
    'Serves both APIs of kpng: the local one, in which each client names its node and gets the local view of ' +
      'it, and the global one. Clients of kpng work as well as those of this program.',
    'It listens on loopback only by default. Without TLS, every client that can connect can read the state ' +
      'of the cluster.',
  ],
  examples: {
    'file -i state.yaml to-api': 'serves a state file to backends on this host',
    'api --api kpng.example:12090 to-api --listen unix:///run/kpng/proxy.sock':
      'relays the state of another server to the backends of this host',
  },
  flags: {
    ...group('Sink: to-api', {
      listen: flag(text('address'), DEFAULT_LISTEN, {
        help:
          'Listen address: tcp://ip:port or unix:///path. tcp://:12090 is every address of the host, tcp4:// and ' +
          'tcp6:// only those of one family.',
      }),
      'listen-tls-crt': flag(text('path'), '', {
        help:
          'PEM file with the certificate of the server. Empty: plaintext. The three TLS files are reloaded when ' +
          'they change.',
      }),
      'listen-tls-key': flag(text('path'), '', {
        help: 'PEM file with the key of that certificate.',
      }),
      'listen-tls-ca': flag(text('path'), '', {
        help: 'PEM file with authorities. If set, clients need a certificate that one of them has signed.',
      }),
      'local-api': flag(toggle(), true, { help: 'Serve the local API.' }),
      'globalv1-api': flag(toggle(), true, { help: 'Serve the global API.' }),
    }),
    ...group('Limits', {
      'max-watchers': flag(integer(1), DEFAULT_SERVER_LIMITS.maxWatchers, {
        help: 'Concurrent watchers.',
      }),
      'max-api-connections': flag(integer(1), DEFAULT_SERVER_LIMITS.maxConnections, {
        help: 'Concurrent connections to the API.',
      }),
      'max-streams': flag(integer(1, 2 ** 31 - 1), DEFAULT_SERVER_LIMITS.maxStreams, {
        help: 'Concurrent calls on one connection.',
      }),
      'max-request-size': flag(size(1024, 2 ** 31 - 1), DEFAULT_SERVER_LIMITS.maxMessageSize, {
        help: 'Largest message accepted from a client.',
      }),
      'max-history': flag(integer(0), DEFAULT_SERVER_LIMITS.maxHistory, {
        help: 'Endpoints of previous states kept in memory for clients that lag behind. Clients that lag further restart from scratch.',
      }),
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
      apis: [
        ...(values.localApi ? (['local'] as const) : []),
        ...(values.globalv1Api ? (['global'] as const) : []),
      ],
      serverLimits: {
        maxWatchers: values.maxWatchers,
        maxConnections: values.maxApiConnections,
        maxStreams: values.maxStreams,
        maxMessageSize: values.maxRequestSize,
        maxHistory: values.maxHistory,
      },
    };
  },
  async start({ tls, serverLimits: limits, ...options }, _context, store) {
    keepHeapSmall();
    const [{ startApiServer }, { followTlsFiles }, { LISTEN_TLS_FLAGS, readTls }] =
      await Promise.all([
        import('../../server/server.ts'),
        import('../../server/tls.ts'),
        import('../../util/tls-files.ts'),
      ]);
    const material = await readTls(tls, LISTEN_TLS_FLAGS);
    const server = await startApiServer({ ...options, limits, store, tls: material });
    const ends = [collectOnceSynced(store)];
    if (material !== undefined) ends.push(followTlsFiles(server, tls, material));
    const end = (): void => ends.forEach((each) => each());
    return {
      close() {
        end();
        return server.close();
      },
      async destroy() {
        end();
        server.destroy();
      },
    };
  },
});
