/** A program of the benchmark: the store and the API server, as `to-api` puts them together. */
import { loadHasher } from '../../src/api/hash.ts';
import { collectAfterFirst, keepHeapSmall } from '../../src/cli/small-heap.ts';
import { parseListen } from '../../src/server/listen-address.ts';
import { startApiServer } from '../../src/server/server.ts';
import { GlobalStore } from '../../src/store/global-store.ts';
import { answerRequests, settings } from '../support/dialogue.ts';
import { fill, nodeOf, sliceOf, type ClusterSize } from './cluster.ts';

type ServerRequest =
  | { readonly do: 'port' }
  /** Moves one endpoint of a service. */
  | { readonly do: 'change'; readonly service: number; readonly generation: number };

keepHeapSmall();
const size = settings() as ClusterSize;
const store = new GlobalStore({ hasher: await loadHasher() });
store.update((transaction) => fill(transaction, size));
collectAfterFirst(undefined);
// All clients have one address, which has a share of the limits only.
const limits = { maxWatchers: 100_000, maxConnections: 100_000 };
const server = await startApiServer({ store, listen: parseListen('tcp://127.0.0.1:0'), limits });
const nodes = Array.from({ length: size.nodes }, (_, index) => nodeOf(index));

answerRequests((request: ServerRequest) => {
  if (request.do === 'port') {
    const { address } = server;
    return address.kind === 'tcp' ? address.port : 0;
  }
  const slice = sliceOf(request.service, nodes, request.generation);
  if (!store.update((transaction) => transaction.setSource(slice))) throw new Error('no change');
  return undefined;
});
