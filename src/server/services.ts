/** The gRPC services of the server. */
import type { Server, ServerWritableStream } from '@grpc/grpc-js';
import { ReflectionService } from '@grpc/reflection';
import { HealthImplementation } from 'grpc-health-check';
import { FILE_DESCRIPTORS } from '../api/generated/descriptors.ts';
import { GlobalReaders } from '../store/reader.ts';
import type { GlobalStore } from '../store/global-store.ts';
import { LocalReaders } from '../store/local-readers.ts';
import type { ApiName } from './events.ts';
import { type BytesCall, Watch, type WatchOptions } from './watch.ts';

export const SERVICES: Readonly<Record<ApiName, string>> = {
  local: 'localv1.Sets',
  global: 'globalv1.Sets',
};

export function addWatchService(
  server: Server,
  store: GlobalStore,
  { api, hub, maxMessageSize }: Pick<WatchOptions, 'api' | 'hub' | 'maxMessageSize'>,
): void {
  const readers = api === 'local' ? new LocalReaders(store) : new GlobalReaders(store);
  // Watch reads and writes the bytes itself.
  const asIs = (bytes: Buffer): Buffer => bytes;
  const watch = {
    path: `/${SERVICES[api]}/Watch`,
    requestStream: true,
    responseStream: true,
    requestSerialize: asIs,
    requestDeserialize: asIs,
    responseSerialize: asIs,
    responseDeserialize: asIs,
  };
  server.addService(
    { watch },
    { watch: (call: BytesCall) => void new Watch({ api, call, readers, hub, maxMessageSize }) },
  );
}

type WatchCall = ServerWritableStream<{ service: string }, { status: string }>;

/**
 * Adds gRPC's health service to a server. The server as a whole (`""`) and each API serve once there
 * is a complete state to serve; losing the source changes nothing about that. Returns a function to call when the
 * server is about to end.
 */
export function addHealth(
  server: Server,
  store: GlobalStore,
  apis: readonly ApiName[],
): () => void {
  const names = ['', ...apis.map((api) => SERVICES[api])];
  const health = new HealthImplementation();
  const setAll = (isServing: boolean): void => {
    for (const name of names) health.setStatus(name, isServing ? 'SERVING' : 'NOT_SERVING');
  };
  setAll(store.synced);
  health.addToServer({
    addService(definition, implementation) {
      // grpc-js would remember every name that a client sends.
      const watchKnown = implementation['watch'] as (call: WatchCall) => void;
      const watch = (call: WatchCall): void => {
        if (names.includes(call.request.service)) watchKnown(call);
        else call.write({ status: 'SERVICE_UNKNOWN' });
      };
      server.addService(definition, { ...implementation, watch });
    },
  });
  const stopListening = store.synced
    ? () => {}
    : store.onChange(() => {
        if (!store.synced) return;
        setAll(true);
        stopListening();
      });
  return () => {
    stopListening();
    setAll(false);
  };
}

type PackageDefinition = ConstructorParameters<typeof ReflectionService>[0];

/**
 * Adds gRPC's reflection service to a server, so that tools such as grpcurl know the messages of these APIs and of
 * the health service.
 */
export function addReflection(server: Server, services: readonly string[]): void {
  const fileDescriptorProtos = FILE_DESCRIPTORS.map((text) => Buffer.from(text, 'base64'));
  // The reflection service only reads the descriptors of a definition.
  const definition = { files: { fileDescriptorProtos } } as unknown as PackageDefinition;
  const listed = [...services, 'grpc.health.v1.Health'];
  new ReflectionService(definition, { services: listed }).addToServer(server);
}
