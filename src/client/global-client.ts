import { GlobalWatchReq } from '../api/generated/globalv1/api.ts';
import { decodeGlobalOp, type GlobalDataOp } from '../api/global-ops.ts';
import type { ChangeOp } from '../api/ops.ts';
import type { GlobalSource, GlobalStore } from '../store/global-store.ts';
import { DEFAULT_STATE_LIMITS, type StateLimits } from '../store/state-size.ts';
import { Connector, type ConnectorOptions } from './connector.ts';
import { GlobalMirror } from './global-mirror.ts';

/**
 * Watches the global API of a kpng server and writes its state to a store.
 *
 * When the connection is lost, the state stays. The next connection brings the full data; missing entries are removed
 * once it is complete, and only differences count as changes.
 */
export class GlobalClient implements GlobalSource {
  readonly name: string;
  readonly #connector: Connector<GlobalDataOp>;
  readonly #limits: StateLimits;

  constructor(options: ConnectorOptions) {
    this.#connector = new Connector(
      {
        name: 'global API',
        flag: '--globalv1-api',
        path: '/globalv1.Sets/Watch',
        encodeRequest: () => GlobalWatchReq.encode({}).finish(),
        decode: decodeGlobalOp,
      },
      options,
    );
    this.#limits = options.stateLimits ?? DEFAULT_STATE_LIMITS;
    this.name = this.#connector.source;
  }

  async feed(store: GlobalStore, signal: AbortSignal): Promise<void> {
    const mirror = new GlobalMirror(this.#limits);
    const sets = {
      reset: () => mirror.reset(),
      apply: (op: ChangeOp<GlobalDataOp>) => mirror.apply(op),
      complete: async () => {
        await store.updateInParts((transaction) => mirror.steps(transaction));
        this.#connector.synced();
        return undefined;
      },
    };
    await this.#connector.run({ sets, nodeName: '', once: false }, signal);
  }
}
