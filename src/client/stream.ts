/**
 * One Watch call. The gRPC library is loaded when the first stream is opened, so programs that take
 * their state from elsewhere never load it.
 */
import type { Client, ChannelOptions, ClientDuplexStream, connectivityState } from '@grpc/grpc-js';
import { KpngError } from '../errors.ts';
import type { Clock } from '../util/clock.ts';
import { trackConnections } from './connections.ts';
import { streamError } from './status.ts';
import type { Target } from './target.ts';
import type { TlsMaterial } from '../util/tls-files.ts';

/** The parts of an operation that a stream depends on. */
export interface StreamOp {
  readonly kind: string;
}

/** One of kpng's two APIs, as a client sees it. */
export interface StreamApi<Op extends StreamOp> {
  /** For people: `local API`. */
  readonly name: string;
  /** Path of the method. */
  readonly path: string;
  /** The server's flag that switches it off. */
  readonly flag: string;
  readonly encodeRequest: (nodeName: string) => Uint8Array;
  readonly decode: (bytes: Uint8Array) => Op;
}

export interface StreamOptions<Op extends StreamOp> {
  readonly api: StreamApi<Op>;
  readonly target: Target;
  readonly tls: TlsMaterial | undefined;
  /** Maximum size of a message from the server. Bytes. */
  readonly maxMessageSize: number;
  /** Time limit for the connection and its HTTP/2 handshake. Milliseconds. */
  readonly connectTimeoutMs: number;
  readonly clock: Clock;
  /** Called once connected. The server may still refuse the call. */
  readonly onConnected: () => void;
}

/** Operations from a server. Iteration always ends with a KpngError (KPNG_SOURCE_LOST). */
export interface OpStream<Op extends StreamOp> extends AsyncIterable<Op> {
  /** Requests one change set. */
  request(nodeName: string): void;
  /** Ends the call and its connection at once. Idempotent. */
  close(): void;
}

/** Dials and starts the call. A failure to connect is reported when the stream is read. */
export async function openStream<Op extends StreamOp>(
  options: StreamOptions<Op>,
): Promise<OpStream<Op>> {
  const { Client, connectivityState, status } = await import('@grpc/grpc-js');
  const { api, target, connectTimeoutMs, onConnected, clock } = options;
  const connections = await trackConnections(target, options.tls);
  const client = new Client(target.uri, connections.credentials, channelOptions(options));
  const call = client.makeBidiStreamRequest(
    api.path,
    (nodeName: string) => Buffer.from(api.encodeRequest(nodeName)),
    api.decode,
  );
  // Reading the stream reports the error. Without a listener, an error during a pause, while the sink works, would
  // end the process.
  call.on('error', () => {});
  let timedOut = false;
  let connected = false;
  const timer = clock.setTimer(connectTimeoutMs, () => {
    timedOut = true;
    call.cancel();
  });
  const close = (): void => {
    timer.cancel();
    call.cancel();
    client.close();
    connections.destroy();
  };
  onceReady(client, connectivityState, () => {
    timer.cancel();
    connected = true;
    onConnected();
  });
  return {
    request: (nodeName) => void call.write(nodeName),
    close,
    [Symbol.asyncIterator]: () =>
      readOps(call, (cause) =>
        timedOut
          ? new KpngError('KPNG_SOURCE_LOST', `No answer within ${connectTimeoutMs / 1000} s.`)
          : streamError(cause, {
              codes: status,
              maxMessageSize: options.maxMessageSize,
              unimplemented:
                `the server does not serve the ${api.name}: it is switched off there (${api.flag}), ` +
                'or the server is a kpng from before 2022-10-31',
              notUnderstood: options.tls === undefined && connections.reached && !connected,
            }),
      ),
  };
}

/** Calls back when the channel is ready; never if it is closed first. */
function onceReady(client: Client, states: typeof connectivityState, callback: () => void): void {
  const channel = client.getChannel();
  const watchState = (): void => {
    const state = channel.getConnectivityState(false);
    if (state === states.READY) callback();
    else if (state !== states.SHUTDOWN) channel.watchConnectivityState(state, Infinity, watchState);
  };
  watchState();
}

async function* readOps<Op extends StreamOp>(
  call: ClientDuplexStream<string, Op>,
  describe: (error: unknown) => KpngError,
): AsyncGenerator<Op, void, undefined> {
  try {
    for await (const op of call) yield op as Op;
  } catch (error) {
    throw describe(error);
  }
  throw new KpngError('KPNG_SOURCE_LOST', 'The server ended the stream.');
}

/**
 * A Go server closes connections with pings more often than every five minutes, and sends nothing while nothing
 * changes. So a server that hangs on a live host is detected only after keepalive time and timeout, 350 s after its
 * last byte. (A dead host is detected earlier, see connections.ts.) Until then the last state is served, as without a
 * connection.
 */
const KEEPALIVE_MS = 330_000;
const KEEPALIVE_TIMEOUT_MS = 20_000;

function channelOptions({ maxMessageSize }: { readonly maxMessageSize: number }): ChannelOptions {
  return {
    'grpc.max_receive_message_length': maxMessageSize,
    'grpc.keepalive_time_ms': KEEPALIVE_MS,
    'grpc.keepalive_timeout_ms': KEEPALIVE_TIMEOUT_MS,
    // grpc-js would send even loopback connections through http_proxy.
    'grpc.enable_http_proxy': 0,
    // Reconnecting is decided here, one connection at a time, with the state kept.
    'grpc.enable_retries': 0,
    'grpc.use_local_subchannel_pool': 1,
    // No TXT look-ups.
    'grpc.service_config_disable_resolution': 1,
  };
}
