/**
 * A bare client of the API server: sends requests on request and keeps what comes, for tests
 * that look at the wire.
 */
import {
  Client,
  credentials,
  type ChannelCredentials,
  type ClientDuplexStream,
  type StatusObject,
} from '@grpc/grpc-js';
import { connect as connectHttp2 } from 'node:http2';
import type { Socket } from 'node:net';
import type { Test } from 'tap';
import { OpItem, WatchReq } from '../../src/api/generated/localv1/api.ts';
import { decodeOp } from '../../src/api/ops.ts';
import { parseListen } from '../../src/server/listen-address.ts';
import { type ApiServer, startApiServer, type ApiServerOptions } from '../../src/server/server.ts';
import { type ChangeSet, GlobalReaders } from '../../src/store/reader.ts';
import type { GlobalStore } from '../../src/store/global-store.ts';
import { LocalReaders } from '../../src/store/local-readers.ts';
import { emptyCluster, type Cluster } from './cluster.ts';
import { Mailbox } from './until.ts';

/** `R`, `Y`, `S1 path`, `D2 path`: Reset, Sync, Set and Delete with the number of the set. */
export function opText({ op }: OpItem): string {
  if (op?.$case === 'set') return `S${op.value.ref?.set} ${op.value.ref?.path}`;
  if (op?.$case === 'delete') return `D${op.value.set} ${op.value.path}`;
  return { reset: 'R', sync: 'Y', none: '?' }[op?.$case ?? 'none'];
}

/** One Watch call. */
export class WatchCall {
  readonly stream: ClientDuplexStream<Buffer, Buffer>;
  readonly #items = new Mailbox<Buffer>('an operation');
  /** How the call ended. */
  readonly status: Promise<StatusObject>;

  constructor(call: ClientDuplexStream<Buffer, Buffer>) {
    this.stream = call;
    call.on('data', (bytes: Buffer) => this.#items.put(bytes));
    call.on('error', () => {});
    this.status = new Promise((resolve) => {
      call.on('status', resolve);
    });
  }

  request(nodeName = ''): void {
    this.stream.write(Buffer.from(WatchReq.encode({ nodeName }).finish()));
  }

  /** Sends bytes in place of a request. */
  sendBytes(bytes: Uint8Array): void {
    this.stream.write(Buffer.from(bytes));
  }

  async next(): Promise<OpItem> {
    return OpItem.decode(await this.#items.take());
  }

  /** The operations up to and including the next Sync. */
  async changeSet(): Promise<OpItem[]> {
    const items: OpItem[] = [];
    for (;;) {
      const item = await this.next();
      items.push(item);
      if (item.op?.$case === 'sync') return items;
    }
  }

  /** The same as short texts. */
  async texts(): Promise<string[]> {
    return (await this.changeSet()).map(opText);
  }

  /** Requests a change set. */
  ask(nodeName = ''): Promise<string[]> {
    this.request(nodeName);
    return this.texts();
  }
}

/** The port of a server on TCP. */
export function portOf({ address }: ApiServer): number {
  if (address.kind !== 'tcp') throw new Error('not TCP');
  return address.port;
}

/** A message of gRPC as it goes over the wire; `flag` 1: compressed. */
export function framed(message: Uint8Array, flag = 0): Buffer {
  const prefix = Buffer.alloc(5);
  prefix[0] = flag;
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

/** Opens streams over one HTTP/2 connection, by default for the local Watch. Ends with the test. */
export function openStreams(t: Test, socket: Socket) {
  const session = connectHttp2('http://kpng', { createConnection: () => socket });
  session.on('error', () => {});
  t.teardown(() => session.destroy());
  const open = (path = '/localv1.Sets/Watch') => {
    const headers = { ':method': 'POST', ':path': path, te: 'trailers' };
    return session.request(
      { ...headers, 'content-type': 'application/grpc' },
      { endStream: false },
    );
  };
  return { session, open };
}

/** Connects to a server, and calls Watch as often as it is asked to. Ends with the test. */
export function connectApi(
  t: Test,
  server: ApiServer,
  channel: ChannelCredentials = credentials.createInsecure(),
) {
  const { address } = server;
  const target = address.kind === 'unix' ? `unix:${address.path}` : `127.0.0.1:${address.port}`;
  const client = new Client(target, channel, {
    'grpc.use_local_subchannel_pool': 1,
    // Node refuses an address as a TLS server name, which grpc-js would ask for.
    'grpc.ssl_target_name_override': 'localhost',
  });
  t.teardown(() => client.close());
  const asIs = (bytes: Buffer): Buffer => bytes;
  const call = (path: string): WatchCall =>
    new WatchCall(client.makeBidiStreamRequest(path, asIs, asIs));
  return {
    watch: () => call('/localv1.Sets/Watch'),
    watchGlobal: () => call('/globalv1.Sets/Watch'),
    close: () => client.close(),
  };
}

export interface ApiRigOptions extends Partial<Omit<ApiServerOptions, 'store' | 'listen'>> {
  /** Default: a free port of 127.0.0.1. */
  readonly listen?: string;
  readonly cluster?: Cluster;
  /** Of the client. Default: plaintext. */
  readonly channel?: ChannelCredentials;
}

/** A server of a cluster's state and a bare client of it. Both end with the test. */
export async function startApiRig(t: Test, options: ApiRigOptions = {}) {
  const { listen, channel, ...rest } = options;
  const cluster = options.cluster ?? (await emptyCluster());
  const server: ApiServer = await startApiServer({
    ...rest,
    store: cluster.store,
    listen: parseListen(listen ?? 'tcp://127.0.0.1:0'),
  });
  t.teardown(() => server.destroy());
  return { cluster, server, ...connectApi(t, server, channel) };
}

/** The operations in a piece of whole frames. */
function itemsOf(frames: Buffer): OpItem[] {
  const items: OpItem[] = [];
  for (let at = 0; at < frames.length;) {
    const end = at + 5 + frames.readUInt32BE(at + 1);
    items.push(OpItem.decode(frames.subarray(at + 5, end)));
    at = end;
  }
  return items;
}

/** The operations of a change set, without its Sync. */
export function itemsIn(changeSet: ChangeSet | undefined): OpItem[] {
  const pieces = Buffer.isBuffer(changeSet) ? [changeSet] : [...(changeSet ?? [])];
  return pieces.flatMap(itemsOf).filter(({ op }) => op?.$case !== 'sync');
}

/** The same as short texts, see `opText`; undefined: there was none. */
export function textsOf(changeSet: ChangeSet | undefined): string[] | undefined {
  return changeSet && itemsIn(changeSet).map(opText);
}

/** Every entry of a store, with its bytes. */
export function contentOf(store: GlobalStore): string[] {
  const items = itemsIn(new GlobalReaders(store).open(() => {}).next(''));
  return items.map((item) => `${opText(item)} ${JSON.stringify(item)}`);
}

/** Throws if clients of a store could not take what it passes on to them. */
export function checkPassedOn(store: GlobalStore): void {
  for (const [api, readers] of [
    ['local', new LocalReaders(store)],
    ['global', new GlobalReaders(store)],
  ] as const) {
    for (const item of itemsIn(readers.open(() => {}).next('n1'))) {
      const op = decodeOp(api, OpItem.encode(item).finish());
      if (op.kind === 'invalid') throw op.error;
    }
  }
}
