/**
 * One Watch call. The gRPC library is loaded when the first stream is opened, so programs that take
 * their state from elsewhere never load it.
 */
import type { ChannelOptions, Client, connectivityState, StatusObject } from '@grpc/grpc-js';
import { decodeOp, type StreamOp } from '../api/ops.ts';
import { KpngError } from '../errors.ts';
import type { Clock } from '../util/clock.ts';
import { trackConnections } from './connections.ts';
import type { Target } from './target.ts';
import type { TlsMaterial } from '../util/tls-files.ts';

/** One of kpng's two APIs, as a client sees it. */
export interface StreamApi {
  readonly name: 'local' | 'global';
  /** The message that requests a change set. */
  readonly request: Uint8Array;
}

/** How to connect to a server. */
export interface StreamOptions {
  /** See `parseTarget`. */
  readonly target: Target;
  /** See `readTls`. Default: no TLS. */
  readonly tls?: TlsMaterial | undefined;
  /** Maximum size of a message from the server. Bytes. Default: 4194304. */
  readonly maxMessageSize?: number | undefined;
  /** Time limit for the connection and its HTTP/2 handshake. Milliseconds. Default: 20 000, as in Go's gRPC. */
  readonly connectTimeoutMs?: number | undefined;
}

/** 4 MiB, the limit of gRPC and of kpng. One message is one service or one endpoint. */
const DEFAULT_MAX_MESSAGE_SIZE = 4_194_304;

/**
 * Dials, calls Watch, and yields the operations from the server. The first change set is requested at once, each other
 * one when the consumer asks for what follows a Sync. Always ends with a KpngError (KPNG_SOURCE_LOST), also when `stop`
 * aborts. `onConnected`: called once connected; the server may still refuse the call.
 */
export async function* readOperations(
  api: StreamApi,
  options: StreamOptions,
  clock: Clock,
  stop: AbortSignal,
  onConnected: () => void,
): AsyncGenerator<StreamOp, void, void> {
  const { Client, connectivityState, status } = await import('@grpc/grpc-js');
  const { target, tls, connectTimeoutMs = 20_000 } = options;
  const { maxMessageSize = DEFAULT_MAX_MESSAGE_SIZE } = options;
  const connections = await trackConnections(target, tls);
  const client = new Client(target.uri, connections.credentials, channelOptions(maxMessageSize));
  const call = client.makeBidiStreamRequest(
    `/${api.name}v1.Sets/Watch`,
    (message: Uint8Array) => Buffer.from(message),
    (bytes: Buffer) => decodeOp(api.name, bytes),
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
  stop.addEventListener('abort', close);
  if (stop.aborted) close();
  onceReady(client, connectivityState, () => {
    timer.cancel();
    connected = true;
    onConnected();
  });
  try {
    call.write(api.request);
    for await (const op of call as AsyncIterable<StreamOp>) {
      yield op;
      if (op.kind === 'sync') call.write(api.request);
    }
  } catch (cause) {
    if (timedOut) {
      const seconds = connectTimeoutMs / 1000;
      throw new KpngError('KPNG_SOURCE_LOST', `No answer within ${seconds} s.`);
    }
    const { code, message: whole, details } = cause as Error & Partial<StatusObject>;
    // grpc-js sets no status if it cannot decompress a message.
    const name = status[code ?? status.INTERNAL] ?? `status ${code}`;
    const reason = tidy(details || whole);
    const hint =
      tls === undefined && connections.reached && !connected
        ? 'it may be a server with TLS, and this client uses none; give its authority with --api-client-tls-ca'
        : hintFor(name, reason, api.name, maxMessageSize);
    const message = `${name}: ${reason}${hint === undefined ? '' : ` (${hint})`}`;
    // Without the cause, which says the same in other words.
    throw new KpngError('KPNG_SOURCE_LOST', message);
  } finally {
    stop.removeEventListener('abort', close);
    close();
  }
  throw new KpngError('KPNG_SOURCE_LOST', 'The server ended the stream.');
}

/** Calls back when the channel is ready; never if it is closed first. Unlike waitForReady, it does not connect again. */
function onceReady(client: Client, states: typeof connectivityState, callback: () => void): void {
  const channel = client.getChannel();
  const watchState = (): void => {
    const state = channel.getConnectivityState(false);
    if (state === states.READY) callback();
    else if (state !== states.SHUTDOWN) channel.watchConnectivityState(state, Infinity, watchState);
  };
  watchState();
}

/**
 * A Go server closes connections with pings more often than every five minutes, and sends nothing while nothing
 * changes. So a server that hangs on a live host is detected only after keepalive time and timeout, 350 s after its
 * last byte. (A dead host is detected earlier, see connections.ts.) Until then the last state is served, as without a
 * connection.
 */
const KEEPALIVE_MS = 330_000;
const KEEPALIVE_TIMEOUT_MS = 20_000;

function channelOptions(maxMessageSize: number): ChannelOptions {
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

/** Messages of OpenSSL and Node about a failed handshake, and what to do. */
const TLS_HINTS: readonly (readonly [RegExp, string])[] = [
  // Of a server that answers in plaintext, or closes at the ClientHello.
  [
    /wrong version number|packet length too long|closed during the TLS handshake/,
    'it may be a server without TLS; leave out the --api-client-tls flags, or give the server a certificate',
  ],
  [
    /self-signed certificate/,
    'the certificate of the server, or its authority, is not trusted; give it with --api-client-tls-ca',
  ],
  [
    /unable to (?:get (?:local )?issuer|verify)/,
    'an unknown authority signed the certificate of the server; give it with --api-client-tls-ca',
  ],
  [/certificate has expired/, 'renew the certificate of the server'],
  [
    /does not match certificate's altnames/,
    'use a name of the certificate in --api, or give the server a certificate for this one',
  ],
];

/** What to do about the end of a stream. */
function hintFor(
  name: string,
  details: string,
  api: StreamApi['name'],
  maxMessageSize: number,
): string | undefined {
  const tls = TLS_HINTS.find(([pattern]) => pattern.test(details));
  if (tls !== undefined) return tls[1];
  if (name === 'UNIMPLEMENTED') {
    const flag = api === 'local' ? '--local-api' : '--globalv1-api';
    return `the server does not serve the ${api} API: it is switched off there (${flag}), or the server is a kpng from before 2022-10-31`;
  }
  if (name === 'RESOURCE_EXHAUSTED' && /message/i.test(details)) {
    return `--max-msg-size is ${maxMessageSize}`;
  }
  return undefined;
}

/** grpc-js appends a mostly empty note and the time, and repeats the code. */
function tidy(details: string): string {
  return (
    details
      .replace(/\.? *Resolution note: *$/, '')
      .replace(/ \([-\d]+T[:.\d]+Z\)/, '')
      .replace(
        /^No connection established\. Last error: (?:Error: )?/,
        'no connection established: ',
      )
      .replace(/(?:Failed to connect|read ECONNRESET)$/, 'the server closed the connection')
      .replace(/^undefined undefined: undefined$/, 'unsupported compression of a message')
      // Of an OpenSSL error, only the text is readable.
      .replace(/[0-9A-F]+:error:[0-9A-F]+:[^:]*:[^:]*:([^:]+):.*$/s, '$1')
      // Advice of Node that has no effect here.
      .replace(
        /; if the root CA is installed locally, try running Node\.js with --use-system-ca/,
        '',
      )
  );
}
