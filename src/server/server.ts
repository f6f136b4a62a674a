import { Server, ServerCredentials, status, type ChannelOptions } from '@grpc/grpc-js';
import { KpngError } from '../errors.ts';
import type { GlobalStore } from '../store/global-store.ts';
import { GlobalReaders } from '../store/global-readers.ts';
import { LocalReaders } from '../store/local-readers.ts';
import type { Readers } from '../store/reader.ts';
import {
  serverLimitReached,
  serverListening,
  watchEnded,
  watchStarted,
  type ApiName,
} from './events.ts';
import type { BytesCall } from './frame-writer.ts';
import { Hub } from './hub.ts';
import { DEFAULT_SERVER_LIMITS, type ServerLimits } from './limits.ts';
import { formatListen, isExposed, type ListenAddress } from './listen-address.ts';
import { listen, type Listener } from './listener.ts';
import { METHODS, serviceDefinition } from './methods.ts';
import { Watch } from './watch.ts';

export interface ApiServerOptions {
  /** Whose state is served. */
  readonly store: GlobalStore;
  readonly listen: ListenAddress;
  /** Which APIs are served. Default: both. */
  readonly apis?: readonly ApiName[] | undefined;
  readonly limits?: Partial<ServerLimits> | undefined;
}

/** A server of kpng's two APIs. */
export interface ApiServer {
  /** With the real port. */
  readonly address: ListenAddress;
  /** Watch calls at once. */
  readonly watchers: number;
  /** Takes no more clients, tells those that are there to go, and resolves when they are gone. Idempotent. */
  close(): Promise<void>;
  /** Cuts what is left. Idempotent. */
  destroy(): void;
}

/** Starts serving. Fails with a KPNG_LISTEN_ code. */
export async function startApiServer(options: ApiServerOptions): Promise<ApiServer> {
  const { store, apis } = options;
  const limits = { ...DEFAULT_SERVER_LIMITS, ...options.limits };
  const hub = new Hub();
  const server = new Server(channelOptions(limits));
  for (const api of apis ?? ['local', 'global']) {
    const readers = readersOf(api, store);
    server.addService(serviceDefinition(api), {
      watch: (call: BytesCall) => startWatch({ api, call, hub, readers, limits }),
    });
  }
  const injector = server.createConnectionInjector(ServerCredentials.createInsecure());
  const listener = await listen({
    address: options.listen,
    maxConnections: limits.maxConnections,
    onConnection: (socket) => injector.injectConnection(socket),
    onRefused: () => limitReached('max-api-connections', limits.maxConnections, ''),
  });
  const stopListening = store.onChange(() => hub.changed());
  announce(listener);
  let closing: Promise<void> | undefined;
  return {
    address: listener.address,
    get watchers() {
      return hub.size;
    },
    close() {
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

function readersOf(api: ApiName, store: GlobalStore): Readers {
  return api === 'local' ? new LocalReaders(store) : new GlobalReaders(store);
}

interface WatchStart {
  readonly api: ApiName;
  readonly call: BytesCall;
  readonly hub: Hub;
  readonly readers: Readers;
  readonly limits: ServerLimits;
}

function startWatch({ api, call, hub, readers, limits }: WatchStart): void {
  const peer = call.getPeer();
  if (hub.size >= limits.maxWatchers) {
    limitReached('max-watchers', limits.maxWatchers, peer);
    const message = `there are ${limits.maxWatchers} watchers, and no more are allowed`;
    call.emit('error', Object.assign(new Error(message), { code: status.RESOURCE_EXHAUSTED }));
    return;
  }
  const watch = new Watch({
    call,
    readers,
    nodeNameOf: METHODS[api].nodeNameOf,
    onEnded(ended, error) {
      hub.remove(ended);
      if (!watchEnded.hasSubscribers) return;
      const { nodeName, syncs } = ended;
      watchEnded.publish({ api, peer, nodeName, syncs, watchers: hub.size, error });
    },
  });
  hub.add(watch);
  if (watchStarted.hasSubscribers) watchStarted.publish({ api, peer, watchers: hub.size });
}

function limitReached(limit: string, value: number, peer: string): void {
  if (serverLimitReached.hasSubscribers) serverLimitReached.publish({ limit, value, peer });
}

function announce(listener: Listener): void {
  if (!serverListening.hasSubscribers) return;
  const { address } = listener;
  const exposed = isExposed(address);
  serverListening.publish({ address: formatListen(address), security: 'plaintext', exposed });
}

async function closeServer(server: Server, listener: Listener, hub: Hub): Promise<void> {
  listener.close();
  const error = new KpngError('KPNG_SOURCE_LOST', 'The server is stopping.');
  for (const watch of hub.all()) watch.end(status.UNAVAILABLE, error);
  await new Promise<void>((resolve) => {
    server.tryShutdown(() => resolve());
  });
}

function channelOptions(limits: ServerLimits): ChannelOptions {
  return {
    'grpc.max_receive_message_length': limits.maxMessageSize,
    'grpc.max_concurrent_streams': limits.maxStreams,
    'grpc.keepalive_time_ms': limits.keepAliveMs,
    'grpc.keepalive_timeout_ms': limits.keepAliveTimeoutMs,
    // Nobody asks for these statistics, and they cost memory for each call and connection.
    'grpc.enable_channelz': 0,
  };
}
