import { Server, ServerCredentials, status, type ChannelOptions } from '@grpc/grpc-js';
import { KpngError } from '../errors.ts';
import type { GlobalStore } from '../store/global-store.ts';
import type { TlsMaterial } from '../util/tls-files.ts';
import { serverListening, type ApiName } from './events.ts';
import { DEFAULT_SERVER_LIMITS, type ServerLimits } from './limits.ts';
import { formatListen, isExposed, type ListenAddress } from './listen-address.ts';
import { listen, type Listener } from './listener.ts';
import { addHealth, addReflection, addWatchService, SERVICES } from './services.ts';
import { Shares, sharing } from './shares.ts';
import { securityOf } from './tls.ts';
import { Hub } from './watch.ts';

export interface ApiServerOptions {
  readonly store: GlobalStore;
  readonly listen: ListenAddress;
  /** Default: plaintext. With CAs, clients need a certificate. */
  readonly tls?: TlsMaterial | undefined;
  /** Which APIs are served. Default: both. */
  readonly apis?: readonly ApiName[] | undefined;
  readonly limits?: Partial<ServerLimits> | undefined;
}

/** A server of kpng's two APIs. */
export interface ApiServer {
  /** With the real port. */
  readonly address: ListenAddress;
  readonly watchers: number;
  readonly connections: number;
  /**
   * Uses these files for further handshakes; whether clients need a certificate does not change. No effect in
   * plaintext.
   */
  replaceTls(tls: TlsMaterial): void;
  /** Accepts no more clients, ends the open calls, and resolves when they have ended. Idempotent. */
  close(): Promise<void>;
  /** Closes remaining connections. Idempotent. */
  destroy(): void;
}

/** Starts serving. Fails with a KPNG_LISTEN_ code. */
export async function startApiServer(options: ApiServerOptions): Promise<ApiServer> {
  const { store, tls } = options;
  const apis = options.apis ?? (['local', 'global'] as const);
  const limits = { ...DEFAULT_SERVER_LIMITS, ...options.limits };
  store.limitHistory(limits.maxHistory);
  const hub = new Hub();
  const server = new Server(channelOptions(limits));
  const target = sharing(server, new Shares(limits.maxWatchers));
  const { maxMessageSize } = limits;
  for (const api of apis) addWatchService(target, store, { api, hub, maxMessageSize });
  const healthStopping = addHealth(target, store, apis);
  addReflection(
    target,
    apis.map((api) => SERVICES[api]),
  );
  // Connections come through our own listener, which has more control over sockets than grpc-js.
  const injector = server.createConnectionInjector(ServerCredentials.createInsecure());
  const listener = await listen({
    address: options.listen,
    tls,
    maxConnections: limits.maxConnections,
    onConnection: (socket) => injector.injectConnection(socket),
  });
  const stopListening = store.onChange(() => hub.changed());
  const { address } = listener;
  serverListening.publish({
    address: formatListen(address),
    security: securityOf(tls),
    exposed: isExposed(address),
  });
  let closing: Promise<void> | undefined;
  return {
    address,
    get watchers() {
      return hub.watches.size;
    },
    get connections() {
      return listener.connections;
    },
    replaceTls: (material) => listener.replaceTls(material),
    close() {
      healthStopping();
      closing ??= closeServer(server, listener, hub).finally(stopListening);
      return closing;
    },
    destroy() {
      stopListening();
      server.forceShutdown();
      listener.destroy();
    },
  };
}

async function closeServer(server: Server, listener: Listener, hub: Hub): Promise<void> {
  const ended = listener.close();
  const error = new KpngError('KPNG_SOURCE_LOST', 'The server is stopping.');
  for (const watch of hub.watches) watch.end(status.UNAVAILABLE, error);
  // It may call back before clients have their status, so do not wait for it.
  server.tryShutdown(() => {});
  await ended;
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
