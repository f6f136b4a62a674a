import { Server, ServerCredentials, status, type ChannelOptions } from '@grpc/grpc-js';
import type { Socket } from 'node:net';
import { KpngError } from '../errors.ts';
import type { GlobalStore } from '../store/global-store.ts';
import type { Clock } from '../util/clock.ts';
import type { TlsFiles } from '../util/tls-files.ts';
import { serverListening, type ApiName } from './events.ts';
import { DEFAULT_SERVER_LIMITS, type ServerLimits } from './limits.ts';
import { formatListen, isExposed, type ListenAddress } from './listen-address.ts';
import { listen } from './listener.ts';
import { addHealth, addReflection, addWatchService, SERVICES } from './services.ts';
import { Shares, sharing } from './shares.ts';
import { Hub } from './watch.ts';

export interface ApiServerOptions {
  readonly store: GlobalStore;
  readonly listen: ListenAddress;
  /** Default: plaintext. */
  readonly tls?: TlsFiles | undefined;
  /** Which APIs are served. Default: both. */
  readonly apis?: readonly ApiName[] | undefined;
  readonly limits?: Partial<ServerLimits> | undefined;
  /** When the files are checked. */
  readonly clock?: Clock | undefined;
}

/** A server of kpng's two APIs. */
export type ApiServer = Awaited<ReturnType<typeof startApiServer>>;

/** Starts serving. Fails with a KPNG_LISTEN_ code or KPNG_TLS_FILE. */
export async function startApiServer(options: ApiServerOptions) {
  const { store, clock, tls = {} } = options;
  const apis = options.apis ?? (['local', 'global'] as const);
  const limits = { ...DEFAULT_SERVER_LIMITS, ...options.limits };
  store.history.limit = limits.maxHistory;
  const hub = new Hub();
  const interceptors = [sharing(new Shares(limits.maxWatchers))];
  const server = new Server({ ...channelOptions(limits), interceptors });
  const { maxMessageSize, maxConnections } = limits;
  for (const api of apis) addWatchService(server, store, { api, hub, maxMessageSize });
  const healthStopping = addHealth(server, store, apis);
  addReflection(
    server,
    apis.map((api) => SERVICES[api]),
  );
  // Connections come through our own listener, which has more control over sockets than grpc-js.
  const injector = server.createConnectionInjector(ServerCredentials.createInsecure());
  const onConnection = (socket: Socket): void => injector.injectConnection(socket);
  const accept = { address: options.listen, tls, clock, maxConnections, onConnection };
  const listener = await listen(accept);
  const { address, security } = listener;
  const end = store.onChange(() => hub.changed());
  serverListening.publish({
    address: formatListen(address),
    security,
    exposed: isExposed(address),
  });
  return {
    /** With the real port. */
    address,
    get watchers(): number {
      return hub.watches.size;
    },
    /** Accepts no more clients, ends the open calls, and resolves when they have ended. Idempotent. */
    async close(): Promise<void> {
      healthStopping();
      const ended = listener.close();
      const error = new KpngError('KPNG_SOURCE_LOST', 'The server is stopping.');
      for (const watch of hub.watches) watch.end(status.UNAVAILABLE, error);
      // It may call back before clients have their status, so do not wait for it.
      server.tryShutdown(() => {});
      await ended;
      end();
    },
    /** Closes remaining connections. Idempotent. */
    destroy(): void {
      end();
      server.forceShutdown();
      listener.destroy();
    },
  };
}

function channelOptions(limits: ServerLimits): ChannelOptions {
  return {
    'grpc.max_receive_message_length': limits.maxMessageSize,
    'grpc.max_concurrent_streams': limits.maxStreams,
    'grpc.keepalive_time_ms': limits.keepAliveMs,
    'grpc.keepalive_timeout_ms': limits.keepAliveTimeoutMs,
    'grpc.max_connection_idle_ms': limits.idleMs,
    // Unused statistics, which cost memory for each call and connection.
    'grpc.enable_channelz': 0,
  };
}
