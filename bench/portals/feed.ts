import { once } from 'node:events';
import type { Hasher } from '../../src/api/hash.ts';
import type { GlobalSource, GlobalStore } from '../../src/store/global-store.ts';
import { feedLocalSink } from '../../src/store/local-feed.ts';
import type { LocalChange, LocalSink } from '../../src/store/local-view.ts';
import { ENDPOINT_ADDRESSES } from './network.ts';
import { putService, removeService } from './services.ts';
import { now, type ChangeKind, type Moment } from './subject.ts';

/** When the store had a state, and when the sink had applied it. */
export interface Fed {
  readonly at: Moment;
  readonly doneAt: Moment;
}

/** Feeds a sink as the program's sources do: through the store and the view of a node. One state at a time. */
export class Feed implements GlobalSource {
  readonly name = 'bench';
  readonly #store = Promise.withResolvers<GlobalStore>();
  readonly #stop = new AbortController();
  readonly #over: Promise<void>;
  #applied = Promise.withResolvers<Moment>();

  constructor(sink: LocalSink, hasher: Hasher) {
    this.#over = feedLocalSink(
      { source: this, nodeName: '', hasher },
      { sync: (change) => this.#sync(sink, change) },
      this.#stop.signal,
    );
  }

  async feed(store: GlobalStore, signal: AbortSignal): Promise<void> {
    this.#store.resolve(store);
    await once(signal, 'abort');
  }

  /** The first state. */
  async start(services: number): Promise<Fed> {
    const store = await this.#store.promise;
    let at: Moment = 0;
    await store.updateInParts(function* (transaction) {
      for (let n = 0; n < services; n += 1) {
        putService(transaction, n);
        yield;
      }
      transaction.setComplete();
      at = now();
    });
    return { at, doneAt: await this.#applied.promise };
  }

  /** A change of the n-th service. */
  async change(kind: ChangeKind, n: number): Promise<Fed> {
    const store = await this.#store.promise;
    this.#applied = Promise.withResolvers();
    const at = now();
    store.update((transaction) => {
      if (kind === 'removed') removeService(transaction, n);
      else
        putService(transaction, n, kind === 'added' ? ENDPOINT_ADDRESSES.slice(0, 1) : undefined);
    });
    return { at, doneAt: await this.#applied.promise };
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await this.#over;
  }

  async #sync(sink: LocalSink, change: LocalChange): Promise<void> {
    try {
      await sink.sync(change);
      this.#applied.resolve(now());
    } catch (error) {
      this.#applied.reject(error);
      throw error;
    }
  }
}
