/**
 * A program of the benchmark: clients of the local API, each on a connection and for a node of its own.
 * They speak HTTP/2 directly and look for nothing but the end of each change set, so that they leave
 * the machine to the server.
 */
import { connect, type ClientHttp2Stream } from 'node:http2';
import { WatchReq } from '../../src/api/generated/localv1/api.ts';
import { answerRequests } from '../support/dialogue.ts';
import { settings } from '../support/worker.ts';
import { nodeName } from './cluster.ts';

export interface WatchersSettings {
  readonly port: number;
}

export type WatchersRequest =
  /** Connects clients until there are so many, and waits until each has the state. */
  | { readonly do: 'connect'; readonly count: number }
  /** Waits until each has got one more change set. */
  | { readonly do: 'wait' };

const { port } = settings() as WatchersSettings;
/** Clients that connect at a time. */
const AT_ONCE = 20;
/** A Sync, with the prefix of gRPC. */
const SYNC = Buffer.from([0, 0, 0, 0, 2, 0x0a, 0]);

let clients = 0;
/** Change sets that have come and were not waited for. */
let arrived = 0;
let wake = (): void => {};

function request(name: string): Buffer {
  const message = WatchReq.encode({ nodeName: name }).finish();
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

/** Resolves when the client has the state. Then each change set is counted. */
function watch(index: number): Promise<void> {
  const session = connect(`http://127.0.0.1:${port}`);
  const stream: ClientHttp2Stream = session.request(
    {
      ':method': 'POST',
      ':path': '/localv1.Sets/Watch',
      'content-type': 'application/grpc+proto',
      te: 'trailers',
    },
    { endStream: false },
  );
  const bytes = request(nodeName(index));
  let tail: Buffer = Buffer.alloc(0);
  let first = true;
  stream.write(bytes);
  return new Promise((resolve, reject) => {
    stream.on('error', reject);
    session.on('error', reject);
    stream.on('data', (chunk: Buffer) => {
      tail = chunk.length >= SYNC.length ? chunk : Buffer.concat([tail, chunk]);
      tail = tail.subarray(-SYNC.length);
      if (!tail.equals(SYNC)) return;
      stream.write(bytes);
      if (first) {
        first = false;
        resolve();
      } else {
        arrived++;
        if (arrived >= clients) wake();
      }
    });
  });
}

async function connectUpTo(count: number): Promise<void> {
  while (clients < count) {
    const batch = Math.min(AT_ONCE, count - clients);
    await Promise.all(Array.from({ length: batch }, (_, n) => watch(clients + n)));
    clients += batch;
  }
}

answerRequests(async (what: WatchersRequest) => {
  if (what.do === 'connect') return connectUpTo(what.count);
  if (arrived < clients) {
    await new Promise<void>((resolve) => {
      wake = resolve;
    });
  }
  arrived -= clients;
  return undefined;
});
