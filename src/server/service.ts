import type { ServiceDefinition } from '@grpc/grpc-js';
import { WatchReq } from '../api/generated/localv1/api.ts';
import { wireProblem } from '../api/wire.ts';
import { KpngError } from '../errors.ts';
import { GlobalReaders } from '../store/global-readers.ts';
import type { GlobalStore } from '../store/global-store.ts';
import { LocalReaders } from '../store/local-readers.ts';
import { watchEnded, watchStarted, type ApiName } from './events.ts';
import type { BytesCall } from './http2-stream.ts';
import type { Hub } from './hub.ts';
import type { ServerLimits } from './limits.ts';
import type { ServiceTarget } from './shares.ts';
import { Watch, type ViewRequest } from './watch.ts';

export const SERVICES: Readonly<Record<ApiName, string>> = {
  local: 'localv1.Sets',
  global: 'globalv1.Sets',
};

export interface WatchServiceOptions {
  readonly api: ApiName;
  readonly store: GlobalStore;
  readonly hub: Hub;
  readonly limits: ServerLimits;
}

export function addWatchService(
  server: ServiceTarget,
  { api, store, hub, limits }: WatchServiceOptions,
): void {
  const readers = api === 'local' ? new LocalReaders(store) : new GlobalReaders(store);
  server.addService(serviceDefinition(api), {
    watch(call: BytesCall) {
      const peer = call.getPeer();
      const watch = new Watch({
        call,
        readers,
        // Requests of the global API have no content.
        read: api === 'local' ? readRequest : () => ({ nodeName: '' }),
        maxMessageSize: limits.maxMessageSize,
        onSent: (operations) => hub.sent(operations),
        onEnded(ended, error) {
          hub.remove(ended);
          const { nodeName, syncs } = ended;
          watchEnded.publish({ api, peer, nodeName, syncs, watchers: hub.size, error });
        },
      });
      hub.add(watch);
      watchStarted.publish({ api, peer, watchers: hub.size });
    },
  });
}

function readRequest(request: Buffer): ViewRequest {
  const problem = wireProblem(request, { 1: 'text' });
  if (problem === undefined) return WatchReq.decode(request);
  throw new KpngError('KPNG_OP_INVALID', `A request cannot be decoded: ${problem}.`);
}

/** The service of an API, with messages left as bytes. */
export function serviceDefinition(api: ApiName): ServiceDefinition {
  const asBuffer = (bytes: Uint8Array): Buffer =>
    Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes);
  return {
    watch: {
      path: `/${SERVICES[api]}/Watch`,
      requestStream: true,
      responseStream: true,
      requestSerialize: asBuffer,
      requestDeserialize: (bytes) => bytes,
      responseSerialize: asBuffer,
      responseDeserialize: (bytes) => bytes,
    },
  };
}
