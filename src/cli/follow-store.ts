import type { Health } from '../observe/health.ts';
import type { Log } from '../observe/log.ts';
import { sourceSynced } from '../store/events.ts';
import type { GlobalStore } from '../store/global-store.ts';

export interface FollowStoreOptions {
  readonly store: GlobalStore;
  /** Name of the source that feeds it. */
  readonly source: string;
  readonly health: Health;
  readonly log: Log;
}

/**
 * Tells health, and once the log, that a store has the state of the cluster, which is then in place for
 * whoever asks. Returns the function that ends it.
 */
export function followStore({ store, source, health, log }: FollowStoreOptions): () => void {
  let known = store.pin(() => known.release());
  const end = store.onChange(() => {
    if (!store.synced) return;
    if (sourceSynced.hasSubscribers) {
      const changed = [...store.services.changedSince(known.revision)].length;
      sourceSynced.publish({ source, services: store.serviceCount, changed });
    }
    known.release();
    known = store.pin(() => known.release());
    if (health.facts.firstSyncAt === undefined) {
      log.info('The first complete state is in place', { services: store.serviceCount });
    }
    health.synced();
  });
  return () => {
    end();
    known.release();
  };
}
