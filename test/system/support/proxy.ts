import { ScriptProcess } from './lines.ts';
import type { Network } from './network.ts';
import type { ProxyOptions, ProxyRequest, WantedService } from './proxy-main.ts';

export type { WantedService } from './proxy-main.ts';

/** An event of a portal, as its channel reports it. */
export interface PortalEvent {
  readonly channel: string;
  readonly reason?: string;
  readonly code?: string;
  readonly message?: string;
  readonly removed?: number;
}

/** The proxy on the node of a test network, as a process of its own. */
export class Proxy {
  readonly #process: ScriptProcess;

  constructor(network: Network, options: ProxyOptions = {}) {
    this.#process = new ScriptProcess(network, 'node', 'proxy-main.ts', [JSON.stringify(options)]);
  }

  /** Events of the portal, in order. */
  get events(): readonly PortalEvent[] {
    return this.#process.events as PortalEvent[];
  }

  /** Reasons of the writes so far: `start`, `change`, `repair`. */
  get writes(): readonly string[] {
    return this.events
      .filter(({ channel }) => channel.endsWith('portal:written'))
      .map(({ reason = '' }) => reason);
  }

  /** Resolves when the change is in place. */
  sync(
    set: Record<string, WantedService>,
    remove: readonly string[] = [],
  ): Promise<{ ms: number; problems: string[] }> {
    return this.#ask({ do: 'sync', set, remove }) as Promise<{ ms: number; problems: string[] }>;
  }

  /** Ends a worker of the engine as a crash would. */
  async loseWorker(index: number): Promise<void> {
    await this.#ask({ do: 'lose-worker', index });
  }

  /** CPU time so far, in microseconds. */
  usage(): Promise<NodeJS.CpuUsage> {
    return this.#ask({ do: 'usage' }) as Promise<NodeJS.CpuUsage>;
  }

  get pid(): number {
    return this.#process.pid;
  }

  /** `SIGKILL` by default: it gets no chance to tidy up. */
  kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    return this.#process.end(signal);
  }

  #ask(request: ProxyRequest): Promise<unknown> {
    return this.#process.ask(request);
  }
}
