import type { ListenSpec } from '../../proxysocket/spec.ts';
import { KpngError } from '../../errors.ts';
import { type AddressClaim, AddressPortal, type AddressPortalOptions } from '../address.ts';
import { portalFailed, portalWritten } from '../events.ts';
import type { Listener } from '../listen-plan.ts';
import type { PortAllocator } from '../proxy-ports.ts';
import {
  type BoundPorts,
  type PortalProblem,
  portalText,
  type ServicePortPortals,
} from '../portal.ts';
import { type ProxyRule, ruleFor, type RuleStore } from './portproxy-store.ts';

export interface PortProxyOptions {
  /** Who has which address, and the interface that gets them. */
  readonly addresses: AddressPortalOptions;
  readonly store: RuleStore;
  readonly allocator: PortAllocator;
  /** IP literal of the proxy ports; `0.0.0.0` and `::` mean the loopback address. */
  readonly bindAddress: string;
  readonly removeOnClose: boolean;
}

/**
 * Redirects TCP to proxy ports with `netsh interface portproxy`, for hosts where service addresses cannot be listened
 * on.
 *
 * The IP Helper service dials, so the proxy sees the host as client: affinity cannot distinguish clients, and service
 * ports with source ranges, like UDP, listen on their addresses.
 */
export class PortProxyPortal extends AddressPortal {
  override readonly kind = 'portproxy';
  readonly #store: RuleStore;
  protected override readonly proxyAddress: string;
  readonly #removeOnClose: boolean;
  #conflicts: readonly ProxyRule[] = [];
  #isFirst = true;
  #closed: Promise<void> | undefined;

  constructor({ addresses, store, allocator, bindAddress, removeOnClose }: PortProxyOptions) {
    super(addresses, allocator);
    this.#store = store;
    this.proxyAddress = { '0.0.0.0': '127.0.0.1', '::': '::1' }[bindAddress] ?? bindAddress;
    this.#removeOnClose = removeOnClose;
  }

  portTaken(servicePort: string, listen: ListenSpec): void {
    this.replacePort(servicePort, listen);
  }

  override problems(): PortalProblem[] {
    return [...super.problems(), ...this.#conflictProblems()];
  }

  /** Rejects with KPNG_PORTAL_* if rules cannot be written; the addresses are added anyway. */
  override async commit(bound: Iterable<BoundPorts>): Promise<void> {
    this.settle(bound);
    await this.#write([...this.names].flatMap((name) => this.#rulesOf(name)));
    await super.commit([]);
  }

  /** To be called once all listeners are closed. */
  override close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  protected override listenersOf(
    wanted: ServicePortPortals,
    held: readonly AddressClaim[],
  ): Listener[] {
    const own = held.filter((claim) => !isRedirected(claim));
    const redirected = held.filter(isRedirected).map(({ listen }) => this.#listenerFor(listen));
    return [...super.listenersOf(wanted, own), ...redirected];
  }

  async #close(): Promise<void> {
    try {
      if (this.#removeOnClose) await this.#write([]);
    } finally {
      await super.close();
    }
  }

  async #write(rules: readonly ProxyRule[]): Promise<void> {
    const begin = performance.now();
    try {
      const { added, removed, conflicts } = await this.#store.write(rules);
      this.#conflicts = conflicts;
      const reason = this.#isFirst ? 'start' : 'change';
      this.#isFirst = false;
      if (added + removed === 0 && reason === 'change') return;
      const durationMs = performance.now() - begin;
      portalWritten.publish({ portal: this.kind, reason, added, removed, durationMs });
    } catch (error) {
      if (error instanceof KpngError) portalFailed.publish({ portal: this.kind, error });
      throw error;
    }
  }

  #listenerFor({ traffic }: ListenSpec): Listener {
    return { address: this.proxyAddress, traffic };
  }

  /** A listener that could not be opened gets no rule: its target would be closed. */
  #rulesOf(name: string): ProxyRule[] {
    const portOf = this.portsOf(name);
    return this.held(name).flatMap((claim) => {
      const port = isRedirected(claim) ? portOf(this.#listenerFor(claim.listen)) : undefined;
      return port === undefined ? [] : [ruleFor(claim, this.proxyAddress, port)];
    });
  }

  #conflictProblems(): PortalProblem[] {
    const [first] = this.#conflicts;
    if (first === undefined) return [];
    const { address, port, toAddress, toPort } = first;
    const listen = portalText({ address, port, protocol: 'TCP' });
    const owner = [...this.names].find((name) =>
      this.held(name).some(
        (claim) =>
          isRedirected(claim) && claim.port === port && [claim.address, '*'].includes(address),
      ),
    );
    const servicePort = owner ?? listen;
    const message =
      `${servicePort} cannot have ${listen}: a portproxy rule of another program redirects it ` +
      `(netsh interface portproxy show all; ${toAddress}:${toPort})`;
    const code = 'KPNG_PORTAL_CONFLICT';
    return [{ servicePort, code, message, count: this.#conflicts.length }];
  }
}

function isRedirected({ protocol, listen }: AddressClaim): boolean {
  return protocol === 'TCP' && listen.sourceRanges === undefined;
}
