/**
 * A kpng server that says what a test asks it to: real gRPC, in this process, on loopback.
 *
 *     const server = await startKpngServer();
 *     const stream = await server.stream();       // the next client that calls Watch
 *     await stream.request();                     // its next request
 *     stream.send(reset, setService(web), sync);
 */
import { once } from 'node:events';
import {
  Server,
  ServerCredentials,
  type ServerDuplexStream,
  type ServiceDefinition,
} from '@grpc/grpc-js';
import type { Test } from 'tap';
import { OpItem, WatchReq } from '../../src/api/generated/localv1/api.ts';
import { KpngClient, type KpngClientOptions } from '../../src/client/client.ts';
import { parseTarget, type Target } from '../../src/client/target.ts';
import type { KpngError } from '../../src/errors.ts';
import { FakeClock } from './fake-clock.ts';
import { Mailbox } from './mailbox.ts';
import { RecordingSink } from './recording-sink.ts';

export interface KpngServerOptions {
  /** Default: a free port of 127.0.0.1. A `unix:` address works too. */
  readonly address?: string;
  /** Default: no TLS. */
  readonly credentials?: ServerCredentials;
  /** Path of the method, to play a server that serves something else. */
  readonly method?: string;
}

/** One Watch call, seen from the server. */
export interface ServerStream {
  /** The next request. Rejects if none comes within the deadline. */
  request(): Promise<WatchReq>;
  /** How many requests came that the test has not asked for. */
  readonly unread: number;
  /** Sends operations, or raw bytes in their place. */
  send(...items: (OpItem | Uint8Array)[]): void;
  /** Sends them after the next request. */
  answer(...items: (OpItem | Uint8Array)[]): Promise<void>;
  /** Resolves when the client has taken most of what was sent, or the call is over. */
  drained(): Promise<unknown>;
  /** Ends the call normally. */
  end(): void;
  /** Ends the call with a status. */
  fail(status: { code: number; details: string }): void;
  /** Resolves when the call is over for whatever reason. */
  readonly closed: Promise<void>;
}

export interface KpngServer {
  readonly target: Target;
  /** Of no meaning for a unix socket. */
  readonly port: number;
  /** The next call that comes in. Rejects if none comes within the deadline. */
  stream(): Promise<ServerStream>;
  /** The next call, whose first request is answered with these operations. */
  answer(...items: (OpItem | Uint8Array)[]): Promise<ServerStream>;
  /** How many calls came that the test has not asked for. */
  readonly unread: number;
  /** Cuts everything at once and frees the address. */
  stop(): void;
}

export async function startKpngServer(options: KpngServerOptions = {}): Promise<KpngServer> {
  const streams = new Mailbox<ServerStream>('a Watch call');
  const server = new Server();
  server.addService(definition(options.method ?? '/localv1.Sets/Watch'), {
    watch: (call: Call) => streams.put(serverStream(call)),
  });
  const address = options.address ?? '127.0.0.1:0';
  const credentials = options.credentials ?? ServerCredentials.createInsecure();
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  server.bindAsync(address, credentials, (error, port) => (error ? reject(error) : resolve(port)));
  const port = await promise;
  return {
    target: parseTarget(address.startsWith('unix:') ? address : `127.0.0.1:${port}`),
    port,
    stream: () => streams.take(),
    async answer(...items) {
      const stream = await streams.take();
      await stream.answer(...items);
      return stream;
    },
    get unread() {
      return streams.size;
    },
    stop: () => server.forceShutdown(),
  };
}

type Call = ServerDuplexStream<WatchReq, OpItem | Uint8Array>;

function serverStream(call: Call): ServerStream {
  const requests = new Mailbox<WatchReq>('a request');
  const { promise: closed, resolve } = Promise.withResolvers<void>();
  call.on('data', (request: WatchReq) => requests.put(request));
  call.on('end', () => {
    call.end();
    resolve();
  });
  call.on('cancelled', resolve);
  call.on('error', () => resolve());
  const send: ServerStream['send'] = (...items) => {
    for (const item of items) call.write(item);
  };
  return {
    request: () => requests.take(),
    get unread() {
      return requests.size;
    },
    send,
    async answer(...items) {
      await requests.take();
      send(...items);
    },
    async drained() {
      if (!call.writableNeedDrain) return;
      await Promise.race([once(call, 'drain'), closed]);
    },
    end: () => call.end(),
    fail: (status) => void call.emit('error', Object.assign(new Error(status.details), status)),
    closed,
  };
}

function definition(path: string): ServiceDefinition {
  return {
    watch: {
      path,
      requestStream: true,
      responseStream: true,
      requestSerialize: (request: WatchReq) => Buffer.from(WatchReq.encode(request).finish()),
      requestDeserialize: (bytes: Buffer) => WatchReq.decode(bytes),
      responseSerialize: (item: OpItem | Uint8Array) =>
        Buffer.from(item instanceof Uint8Array ? item : OpItem.encode(item).finish()),
      responseDeserialize: (bytes: Buffer) => OpItem.decode(bytes),
    },
  };
}

export interface ClientRig {
  readonly server: KpngServer;
  readonly client: KpngClient;
  readonly sink: RecordingSink;
  /** Decides when the client connects again. Its jitter is off: 1000 ms, 1600 ms, ... */
  readonly clock: FakeClock;
  /** What the client reports, one by one. */
  readonly errors: Mailbox<KpngError>;
  readonly stop: AbortController;
  /** The client's run. */
  readonly done: Promise<void>;
}

export interface RigOptions extends Partial<KpngClientOptions> {
  readonly server?: KpngServerOptions;
  readonly sink?: RecordingSink;
}

/** A scripted server and a client that runs against it. Both end with the test. */
export async function startClientRig(t: Test, options: RigOptions = {}): Promise<ClientRig> {
  const { server: serverOptions, sink = new RecordingSink(), ...clientOptions } = options;
  const server = await startKpngServer(serverOptions);
  const clock = new FakeClock();
  const errors = new Mailbox<KpngError>('an error');
  const stop = new AbortController();
  const client = new KpngClient({
    target: server.target,
    nodeName: 'node-a',
    clock,
    random: () => 0.5,
    onError: (error) => errors.put(error),
    ...clientOptions,
  });
  const done = client.run(sink, stop.signal);
  // A rejection is for the test to look at; it may do so late.
  done.catch(() => {});
  t.teardown(async () => {
    stop.abort();
    await done.catch(() => {});
    server.stop();
  });
  return { server, client, sink, clock, errors, stop, done };
}
