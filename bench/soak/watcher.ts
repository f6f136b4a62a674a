import { KpngClient } from '../../src/client/client.ts';
import { parseTarget } from '../../src/client/target.ts';
import type { LocalView } from '../../src/store/local-view.ts';
import { LAST } from './churn.ts';

/** A client of the local API that can be waited for. */
export interface Watcher {
  /** Change sets so far. */
  readonly changes: number;
  readonly services: number;
  /** Resolves when the last service has this address. */
  has(address: string): Promise<void>;
  end(): Promise<void>;
}

export function startWatcher(port: number, nodeName: string): Watcher {
  const stop = new AbortController();
  let view: LocalView | undefined;
  let changes = 0;
  let waiting: { readonly address: string; readonly resolve: () => void } | undefined;
  const look = (): void => {
    const { v4 = [] } = view?.get(LAST)?.service.ips?.clusterIPs ?? {};
    if (waiting === undefined || v4[0] !== waiting.address) return;
    waiting.resolve();
    waiting = undefined;
  };
  const client = new KpngClient({ target: parseTarget(`127.0.0.1:${port}`), nodeName });
  const done = client.run(
    {
      async sync(change) {
        view = change.view;
        changes += 1;
        look();
      },
    },
    stop.signal,
  );
  return {
    get changes() {
      return changes;
    },
    get services() {
      return view?.size ?? 0;
    },
    has(address) {
      return new Promise((resolve) => {
        waiting = { address, resolve };
        look();
      });
    },
    async end() {
      stop.abort();
      await done;
    },
  };
}
