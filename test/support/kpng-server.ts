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
import { parseTarget } from '../../src/client/target.ts';
import type { KpngError } from '../../src/errors.ts';
import { FakeClock } from './fake-clock.ts';
import { RecordingSink } from './recording-sink.ts';
import { until, Mailbox } from './until.ts';

export interface KpngServerOptions {
  /** Default: a free port of 127.0.0.1. A `unix:` address works too. */
  readonly address?: string;
  /** Default: no TLS. */
  readonly credentials?: ServerCredentials;
  /** Path of the method, to play a server that serves something else. */
  readonly method?: string;
}

export type KpngServer = Awaited<ReturnType<typeof startKpngServer>>;

export async function startKpngServer(options: KpngServerOptions = {}) {
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
    /** Of no meaning for a unix socket. */
    port,
    /** The next call that comes in. Rejects if none comes within the deadline. */
    stream: () => streams.take(),
    /** The next call, whose first request is answered with these operations. */
    async answer(...items: Sent[]): Promise<ServerStream> {
      const stream = await streams.take();
      await stream.answer(...items);
      return stream;
    },
    /** How many calls came that the test has not asked for. */
    get unread() {
      return streams.size;
    },
    /** Cuts everything at once and frees the address. */
    stop: () => server.forceShutdown(),
  };
}

/** Operations, or raw bytes in their place. */
type Sent = OpItem | Uint8Array;
type Call = ServerDuplexStream<WatchReq, Sent>;

export type ServerStream = ReturnType<typeof serverStream>;

/** One Watch call, seen from the server. */
function serverStream(call: Call) {
  const requests = new Mailbox<WatchReq>('a request');
  const { promise: closed, resolve } = Promise.withResolvers<void>();
  call.on('data', (request: WatchReq) => requests.put(request));
  call.on('end', () => {
    call.end();
    resolve();
  });
  call.on('cancelled', resolve);
  call.on('error', () => resolve());
  const send = (...items: Sent[]): void => {
    for (const item of items) call.write(item);
  };
  return {
    /** The next request. Rejects if none comes within the deadline. */
    request: () => requests.take(),
    /** How many requests came that the test has not asked for. */
    get unread() {
      return requests.size;
    },
    send,
    /** Sends operations after the next request. */
    async answer(...items: Sent[]): Promise<void> {
      await requests.take();
      send(...items);
    },
    /** Resolves when the client has taken most of what was sent, or the call is over. */
    async drained(): Promise<void> {
      if (!call.writableNeedDrain) return;
      await Promise.race([once(call, 'drain'), closed]);
    },
    end: () => void call.end(),
    /** Ends the call with a status. */
    fail: (status: { code: number; details: string }) =>
      void call.emit('error', Object.assign(new Error(status.details), status)),
    /** Resolves when the call is over for whatever reason. */
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
      responseSerialize: (item: Sent) =>
        Buffer.from(item instanceof Uint8Array ? item : OpItem.encode(item).finish()),
      responseDeserialize: (bytes: Buffer) => OpItem.decode(bytes),
    },
  };
}

export type ClientRig = Awaited<ReturnType<typeof startClientRig>>;

export interface RigOptions extends Partial<KpngClientOptions> {
  readonly server?: KpngServerOptions;
  readonly sink?: RecordingSink;
}

/** A scripted server and a client that runs against it. Both end with the test. */
export async function startClientRig(t: Test, options: RigOptions = {}) {
  const { server: serverOptions, sink = new RecordingSink(), ...clientOptions } = options;
  const server = await startKpngServer(serverOptions);
  /** Decides when the client connects again. Its jitter is off: 1000 ms, 1600 ms, ... */
  const clock = new FakeClock();
  /** What the client reports, one by one. */
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
  /** Waits until the client waits to connect again, and lets that time pass; it must be exactly this long. */
  const retryAfter = async (ms: number): Promise<void> => {
    await until(() => clock.pending === 1);
    clock.advance(ms - 1);
    if (clock.pending === 0) throw new Error(`it waits for less than ${ms} ms`);
    clock.advance(1);
  };
  return { server, client, sink, clock, errors, stop, done, retryAfter };
}
