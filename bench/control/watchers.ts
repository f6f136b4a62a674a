/**
 * A program of the benchmark: clients of the local API, each on a connection and for a node of its own. But for the first
 * one, they speak HTTP/2 directly and look for nothing but the end of each change set, so that they leave the machine
 * to the server.
 */
import { connect } from 'node:http2';
import { WatchReq } from '../../src/api/generated/localv1/api.ts';
import { KpngClient } from '../../src/client/client.ts';
import { parseTarget } from '../../src/client/target.ts';
import { answerRequests, settings } from '../support/dialogue.ts';
import { nodeName } from './cluster.ts';

type WatchersRequest =
  /** Runs a real client until it has the state; answers with a `FirstSync`. */
  | { readonly do: 'sync' }
  /** Connects clients until there are so many, and waits until each has the state. */
  | { readonly do: 'connect'; readonly count: number }
  /** Waits until each has got one more change set. */
  | { readonly do: 'wait' };

export interface FirstSync {
  /** From connecting until the sink has the whole state. Milliseconds. */
  readonly ms: number;
  readonly endpoints: number;
}

const { port } = settings() as { readonly port: number };
/** Clients that connect at a time. */
const AT_ONCE = 20;
/** A Sync, with the prefix of gRPC. */
const SYNC = Buffer.from([0, 0, 0, 0, 2, 0x0a, 0]);

let clients = 0;
/** Change sets that have come and were not waited for. */
let arrived = 0;
let wake = (): void => {};

async function firstSync(): Promise<FirstSync> {
  const target = parseTarget(`127.0.0.1:${port}`);
  const client = new KpngClient({ target, nodeName: nodeName(1), once: true });
  const begin = performance.now();
  let [ms, endpoints] = [0, 0];
  await client.run({
    async sync({ view }) {
      ms = performance.now() - begin;
      for (const entry of view.entries()) endpoints += entry.endpoints.size;
    },
  });
  return { ms, endpoints };
}

function request(name: string): Buffer {
  const message = WatchReq.encode({ nodeName: name }).finish();
  const prefix = Buffer.alloc(5);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

/** Resolves when the client has the state. Then each change set is counted. */
function watch(index: number): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const session = connect(`http://127.0.0.1:${port}`).on('error', reject);
  const stream = session.request({
    ':method': 'POST',
    ':path': '/localv1.Sets/Watch',
    'content-type': 'application/grpc+proto',
    te: 'trailers',
  });
  const bytes = request(nodeName(index));
  let tail: Buffer = Buffer.alloc(0);
  let first = true;
  stream.write(bytes);
  stream.on('error', reject).on('data', (chunk: Buffer) => {
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
  return promise;
}

async function connectUpTo(count: number): Promise<void> {
  while (clients < count) {
    const batch = Math.min(AT_ONCE, count - clients);
    await Promise.all(Array.from({ length: batch }, (_, n) => watch(clients + n)));
    clients += batch;
  }
}

answerRequests(async (what: WatchersRequest) => {
  if (what.do === 'sync') return firstSync();
  if (what.do === 'connect') return connectUpTo(what.count);
  if (arrived < clients) await new Promise<void>((resolve) => (wake = resolve));
  arrived -= clients;
  return undefined;
});
