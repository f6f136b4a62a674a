/**
 * The library: for programs that process the state of a node.
 *
 * import { run } from 'kpng-userspace';
 *
 * await run((items) => {
 * for (const { service, endpoints } of items) console.log(service.name, endpoints.length);
 * });
 *
 * Importing it loads neither gRPC nor the data path.
 */
import './util/require-node.ts';

// A program around one function.
export { handlerSink, run, type Handler, type RunOptions, type ServiceItem } from './client/run.ts';

// Its parts, for programs that need more control.
export { KpngClient, type KpngClientOptions } from './client/client.ts';
export { parseTarget, type Target } from './client/target.ts';
export { readTls, type TlsFiles, type TlsFlags, type TlsMaterial } from './util/tls-files.ts';

// Destinations of state.
export type { LocalChange, LocalSink, LocalView, ServiceEntry } from './store/local-view.ts';
export { JsonSink, type WriteText } from './sinks/json.ts';

// The messages of the local API, with helpers.
export {
  Protocol,
  type ClientIPAffinity,
  type Endpoint,
  type EndpointScopes,
  type IPFilter,
  type IPSet,
  type PortMapping,
  type PortName,
  type Service,
  type ServiceIPs,
} from './api/generated/localv1/api.ts';
export { itemJson } from './api/json.ts';
export { resolvePort } from './proxier/endpoints.ts';

// Errors, and the channels that report them.
export { ERROR_CODES, KpngError, type ErrorCode } from './errors.ts';
export {
  opInvalid,
  sinkFailed,
  sinkRecovered,
  sourceConnected,
  sourceDisconnected,
  sourceSynced,
} from './store/events.ts';
