import { status, type Server } from '@grpc/grpc-js';
import { GlobalReaders } from '../store/global-readers.ts';
import type { GlobalStore } from '../store/global-store.ts';
import { LocalReaders } from '../store/local-readers.ts';
import { serverLimitReached, watchEnded, watchStarted, type ApiName } from './events.ts';
import type { BytesCall } from './http2-stream.ts';
import type { Hub } from './hub.ts';
import type { ServerLimits } from './limits.ts';
import { METHODS, serviceDefinition } from './methods.ts';
import { Watch } from './watch.ts';

export interface WatchServiceOptions {
  readonly api: ApiName;
  readonly store: GlobalStore;
  readonly hub: Hub;
  readonly limits: ServerLimits;
}

/** Adds one of the two APIs to a server. */
export function addWatchService(
  server: Server,
  { api, store, hub, limits }: WatchServiceOptions,
): void {
  const readers = api === 'local' ? new LocalReaders(store) : new GlobalReaders(store);
  const { nodeNameOf } = METHODS[api];
  server.addService(serviceDefinition(api), {
    watch(call: BytesCall) {
      const peer = call.getPeer();
      if (hub.size >= limits.maxWatchers) {
        turnAway(call, peer, limits.maxWatchers);
        return;
      }
      const watch = new Watch({
        call,
        readers,
        nodeNameOf,
        maxMessageSize: limits.maxMessageSize,
        onSent: (operations) => hub.sent(operations),
        onEnded(ended, error) {
          hub.remove(ended);
          if (!watchEnded.hasSubscribers) return;
          const { nodeName, syncs } = ended;
          watchEnded.publish({ api, peer, nodeName, syncs, watchers: hub.size, error });
        },
      });
      hub.add(watch);
      if (watchStarted.hasSubscribers) watchStarted.publish({ api, peer, watchers: hub.size });
    },
  });
}

function turnAway(call: BytesCall, peer: string, maxWatchers: number): void {
  if (serverLimitReached.hasSubscribers) {
    serverLimitReached.publish({ limit: 'max-watchers', value: maxWatchers, peer });
  }
  const message = `there are ${maxWatchers} watchers, and no more are allowed`;
  call.emit('error', Object.assign(new Error(message), { code: status.RESOURCE_EXHAUSTED }));
}
