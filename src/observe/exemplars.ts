import { connectFailed } from '../proxysocket/events.ts';
import type { ConnectErrorCause } from '../proxysocket/counters.ts';
import type { Subscriptions } from '../util/channel.ts';
import { label } from './exposition.ts';

/** Which endpoint of a service port failed last, by cause: exemplars, as OpenMetrics writes them. */
export class Exemplars {
  readonly #failed = new Map<string, Map<ConnectErrorCause, string>>();

  /** `now`: the time of day, in milliseconds. */
  constructor(subscriptions: Subscriptions, now: () => number = Date.now) {
    subscriptions.on(connectFailed, ({ servicePort, endpoint, cause }) => {
      const byCause = this.#failed.get(servicePort) ?? new Map<ConnectErrorCause, string>();
      byCause.set(cause, `{${label('endpoint', endpoint)}} 1 ${now() / 1000}`);
      this.#failed.set(servicePort, byCause);
    });
  }

  of(servicePort: string, cause: ConnectErrorCause): string | undefined {
    return this.#failed.get(servicePort)?.get(cause);
  }

  /** Forgets service ports that are gone. */
  keepOnly(names: ReadonlySet<string>): void {
    for (const name of this.#failed.keys()) if (!names.has(name)) this.#failed.delete(name);
  }
}
