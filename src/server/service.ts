import { GlobalReaders } from '../store/global-readers.ts';
import type { GlobalStore } from '../store/global-store.ts';
import { LocalReaders } from '../store/local-readers.ts';
import { watchEnded, watchStarted, type ApiName } from './events.ts';
import type { BytesCall } from './http2-stream.ts';
import type { Hub } from './hub.ts';
import type { ServerLimits } from './limits.ts';
import { METHODS, serviceDefinition } from './methods.ts';
import type { ServiceTarget } from './shares.ts';
import { Watch } from './watch.ts';

export interface WatchServiceOptions {
  readonly api: ApiName;
  readonly store: GlobalStore;
  readonly hub: Hub;
  readonly limits: ServerLimits;
}

/** Adds one of the two APIs to a server. */
export function addWatchService(
  server: ServiceTarget,
  { api, store, hub, limits }: WatchServiceOptions,
): void {
  const readers = api === 'local' ? new LocalReaders(store) : new GlobalReaders(store);
  const { read } = METHODS[api];
  server.addService(serviceDefinition(api), {
    watch(call: BytesCall) {
      const peer = call.getPeer();
      const watch = new Watch({
        call,
        readers,
        read,
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
