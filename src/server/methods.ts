import type { ServiceDefinition } from '@grpc/grpc-js';
import { WatchReq } from '../api/generated/localv1/api.ts';
import { wireProblem } from '../api/wire.ts';
import { KpngError } from '../errors.ts';
import type { ApiName } from './events.ts';

/** What differs between the two APIs on the wire. */
interface Method {
  /** Name of the gRPC service. */
  readonly service: string;
  readonly path: string;
  readonly read: (request: Buffer) => ViewRequest;
}

/** What a request asks for. */
export interface ViewRequest {
  readonly nodeName: string;
  /** Whether the client knows the scope `cluster` of endpoints. */
  readonly clusterScope?: boolean | undefined;
}

export const METHODS: Readonly<Record<ApiName, Method>> = {
  local: { service: 'localv1.Sets', path: '/localv1.Sets/Watch', read },
  // Its requests have no content.
  global: {
    service: 'globalv1.Sets',
    path: '/globalv1.Sets/Watch',
    read: () => ({ nodeName: '' }),
  },
};

function read(request: Buffer): ViewRequest {
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
      path: METHODS[api].path,
      requestStream: true,
      responseStream: true,
      requestSerialize: asBuffer,
      requestDeserialize: (bytes) => bytes,
      responseSerialize: asBuffer,
      responseDeserialize: (bytes) => bytes,
    },
  };
}
