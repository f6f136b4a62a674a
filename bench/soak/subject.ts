/** A program of the soak test: what `kube to-api` puts together. */
import { Session } from 'node:inspector/promises';
import { loadHasher } from '../../src/api/hash.ts';
import { keepHeapSmall } from '../../src/cli/small-heap.ts';
import { kubeListed, kubeReceived } from '../../src/kube/events.ts';
import { DEFAULT_NODE_LABELS } from '../../src/kube/resource.ts';
import { openKubeSource } from '../../src/kube/source.ts';
import { parseListen } from '../../src/server/listen-address.ts';
import { startApiServer } from '../../src/server/server.ts';
import { GlobalStore } from '../../src/store/global-store.ts';
import { answerRequests, settings } from '../support/dialogue.ts';

export interface SubjectUsage {
  /** In use after a full collection. Bytes. */
  readonly heap: number;
  /** Events that have come so far. */
  readonly events: number;
  /** Complete lists so far. */
  readonly lists: number;
}

const { url } = settings() as { readonly url: string };
keepHeapSmall();
let events = 0;
let lists = 0;
kubeReceived.subscribe(({ added, modified, deleted }) => {
  events += added + modified + deleted;
});
kubeListed.subscribe(() => void (lists += 1));
const store = new GlobalStore({ hasher: await loadHasher() });
const server = await startApiServer({ store, listen: parseListen('tcp://127.0.0.1:0') });
const source = await openKubeSource({
  config: { kubeconfig: '', server: url, env: {} },
  selection: {
    proxyName: '',
    serviceLabels: [],
    serviceAnnotations: [],
    nodeLabels: DEFAULT_NODE_LABELS,
    nodeAnnotations: [],
  },
  userAgent: 'soak',
  backoff: { initialMs: 10, maxMs: 50, factor: 2, jitter: 0 },
});
void source.feed(store, new AbortController().signal);
const inspector = new Session();
inspector.connect();

answerRequests(async (request: { readonly do: 'port' | 'usage' }) => {
  if (request.do === 'port') return server.address.kind === 'tcp' ? server.address.port : 0;
  await inspector.post('HeapProfiler.collectGarbage');
  const heap = process.memoryUsage().heapUsed;
  return { heap, events, lists } satisfies SubjectUsage;
});
