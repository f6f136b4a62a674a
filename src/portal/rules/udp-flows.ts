/** Connection tracking of UDP portals. */
import type { Clock } from '../../util/clock.ts';
import type { HostAddress } from '../../util/host-addresses.ts';
import { flowsCleared, flowsNotCleared } from '../events.ts';
import type { Exec } from '../exec.ts';
import { clearFlows, type FlowAddress, type FlowTargets } from '../flows.ts';
import type { Portal } from '../portal.ts';
import type { Redirect } from '../redirect-plan.ts';
import { type Element, Elements } from './elements.ts';
import type { Written } from './rule-set.ts';

export interface UdpFlowsOptions {
  readonly portal: Portal['kind'];
  readonly exec: Exec;
  readonly clock: Clock;
  readonly interfaces: () => readonly HostAddress[];
  /** Whether rules deliver packets unchanged, so that only earlier rules may have redirected flows. */
  readonly isTransparent: boolean;
}

/** Where the flows to each UDP portal should go. */
export class UdpFlows {
  readonly #options: UdpFlowsOptions;
  /** `4 10.0.0.1 53` or `4 node 30053`, with the proxy port, or nothing if clients are rejected. */
  readonly #portals = new Elements();

  constructor(options: UdpFlowsOptions) {
    this.#options = options;
  }

  set(name: string, redirects: readonly Redirect[]): void {
    const elements = redirects.flatMap(({ family, portal, proxyPort }): Element[] => {
      if (portal.protocol !== 'UDP') return [];
      const key = `${family} ${portal.address ?? 'node'} ${portal.port}`;
      return [{ set: '', key, value: String(proxyPort ?? '') }];
    });
    this.#portals.set(name, elements);
  }

  /**
   * Clears flows that may be stale after a write: of changed portals, or of all when rules were missing or foreign, or
   * were `removed`. Never rejects: clients that pause are served anyway.
   */
  async clear(after: Written['reason'] | 'removed', targets: FlowTargets): Promise<void> {
    const { portal, exec, clock, interfaces, isTransparent } = this.#options;
    const addresses = isTransparent && after !== 'start' ? [] : this.#stale(after);
    this.#portals.written();
    if (addresses.length === 0) return;
    const begin = clock.now();
    const local = new Set(interfaces().map(({ address }) => address));
    const error = await clearFlows(exec, addresses, local, targets);
    if (error !== undefined) {
      if (flowsNotCleared.hasSubscribers) flowsNotCleared.publish({ portal, error });
    } else if (flowsCleared.hasSubscribers) {
      const durationMs = clock.now() - begin;
      flowsCleared.publish({ portal, addresses: addresses.length, durationMs });
    }
  }

  #stale(after: Written['reason'] | 'removed'): FlowAddress[] {
    if (after === 'change') {
      return this.#portals.changes().map(({ key, after: now = '' }) => flowAddress(key, now));
    }
    return [...this.#portals].map(({ key, value }) =>
      flowAddress(key, after === 'removed' ? '' : value),
    );
  }
}

function flowAddress(key: string, proxyPort: string): FlowAddress {
  const [family, address, port] = key.split(' ');
  return {
    family: family === '6' ? 6 : 4,
    address: address === 'node' ? undefined : address,
    port: Number(port),
    proxyPort: proxyPort === '' ? undefined : Number(proxyPort),
  };
}
