import { isDeepStrictEqual } from 'node:util';
import type { ListenSpec, Protocol, Traffic } from '../../proxysocket/spec.ts';
import type { HostAddress } from '../../util/host-addresses.ts';
import { KpngError } from '../../errors.ts';
import type { AddressPortal } from '../address.ts';
import { portalFailed, portalWritten } from '../events.ts';
import { type PortAllocator, type ProxyListener, ProxyPorts } from '../proxy-ports.ts';
import {
  type BoundPorts,
  type Portal,
  type PortalPlan,
  type PortalProblem,
  portalText,
  type ServicePortPortals,
} from '../portal.ts';
import { type ProxyRule, ruleFor, type RuleStore } from './portproxy-store.ts';

export interface PortProxyOptions {
  /** Assigns addresses to service ports, and adds addresses to the interface. */
  readonly addresses: AddressPortal;
  readonly store: RuleStore;
  readonly allocator: PortAllocator;
  /** IP literal of the proxy ports; `0.0.0.0` and `::` mean the loopback address. */
  readonly bindAddress: string;
  readonly removeOnClose: boolean;
}

interface Entry {
  /** Addresses that rules redirect to proxy ports. */
  readonly redirected: readonly ListenSpec[];
  /** Addresses that the engine listens on itself. */
  readonly own: readonly ListenSpec[];
  /** What the engine listens on. */
  listen: readonly ListenSpec[];
  /** The port that the engine has for each kind of traffic. */
  readonly bound: Map<Traffic, number>;
}

/**
 * Redirects TCP to proxy ports with `netsh interface portproxy`, for hosts where service addresses cannot be listened
 * on.
 *
 * The IP Helper service dials, so the proxy sees the host as client: affinity cannot distinguish clients, and service
 * ports with source ranges, like UDP, listen on their addresses.
 */
export class PortProxyPortal implements Portal {
  readonly kind = 'portproxy';
  readonly #addresses: AddressPortal;
  readonly #store: RuleStore;
  readonly #ports: ProxyPorts;
  readonly #address: string;
  readonly #removeOnClose: boolean;
  readonly #entries = new Map<string, Entry>();
  readonly #protocols = new Map<string, Protocol>();
  #conflicts: readonly ProxyRule[] = [];
  #isFirst = true;
  #closed: Promise<void> | undefined;

  constructor(options: PortProxyOptions) {
    this.#addresses = options.addresses;
    this.#store = options.store;
    this.#ports = new ProxyPorts(options.allocator);
    const { bindAddress } = options;
    this.#address = { '0.0.0.0': '127.0.0.1', '::': '::1' }[bindAddress] ?? bindAddress;
    this.#removeOnClose = options.removeOnClose;
  }

  plan(set: readonly ServicePortPortals[], remove: readonly string[]): PortalPlan {
    const needed = new Map<string, readonly ProxyListener[]>();
    for (const name of remove) {
      this.#entries.delete(name);
      this.#protocols.delete(name);
      needed.set(name, []);
    }
    for (const { servicePort, portals } of set) {
      const [first] = portals;
      if (first !== undefined) this.#protocols.set(servicePort, first.protocol);
    }
    const { listen: addresses } = this.#addresses.plan(set, remove);
    for (const [name, wanted] of addresses) needed.set(name, this.#remember(name, wanted));
    const changed = this.#ports.update(needed);
    const listen = new Map<string, readonly ListenSpec[]>();
    for (const name of new Set([...addresses.keys(), ...changed])) {
      const entry = this.#entries.get(name);
      if (entry === undefined) continue;
      const now = [...entry.own, ...this.#ports.listen(name)];
      if (isDeepStrictEqual(entry.listen, now)) continue;
      entry.listen = now;
      listen.set(name, now);
    }
    return { listen, problems: this.problems() };
  }

  portTaken(servicePort: string, listen: ListenSpec): void {
    if (listen.address === this.#address) this.#ports.portTaken(servicePort, listen);
  }

  problems(): readonly PortalProblem[] {
    return [...this.#addresses.problems(), ...this.#ports.problems(), ...this.#conflictProblems()];
  }

  prepare(): Promise<void> {
    return this.#addresses.prepare();
  }

  /** Rejects with KPNG_PORTAL_* if rules cannot be written; the addresses are added anyway. */
  async commit(bound: Iterable<BoundPorts>): Promise<void> {
    for (const [name, list] of bound) {
      const entry = this.#entries.get(name);
      entry?.bound.clear();
      for (const { listen, boundPort } of list) {
        if (listen.address !== this.#address) continue;
        entry?.bound.set(listen.traffic, boundPort);
        this.#ports.opened(name, boundPort);
      }
    }
    await this.#write(this.#rules());
    await this.#addresses.commit();
  }

  hostAddresses(): readonly HostAddress[] {
    return this.#addresses.hostAddresses();
  }

  /** To be called once all listeners are closed. */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    try {
      if (this.#removeOnClose) await this.#write([]);
    } finally {
      await this.#addresses.close();
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
      if (!portalWritten.hasSubscribers) return;
      const durationMs = performance.now() - begin;
      portalWritten.publish({ portal: this.kind, reason, added, removed, durationMs });
    } catch (error) {
      if (error instanceof KpngError && portalFailed.hasSubscribers) {
        portalFailed.publish({ portal: this.kind, error });
      }
      throw error;
    }
  }

  /** Records the addresses of a service port, and returns the proxy ports that it needs. */
  #remember(name: string, wanted: readonly ListenSpec[]): ProxyListener[] {
    const isRedirected = (spec: ListenSpec): boolean =>
      this.#protocols.get(name) === 'TCP' && spec.sourceRanges === undefined;
    const previous = this.#entries.get(name);
    const redirected = wanted.filter((spec) => isRedirected(spec));
    this.#entries.set(name, {
      redirected,
      own: wanted.filter((spec) => !isRedirected(spec)),
      listen: previous?.listen ?? [],
      bound: previous?.bound ?? new Map(),
    });
    return [...new Set(redirected.map(({ traffic }) => traffic))].map((traffic) => {
      return { address: this.#address, traffic };
    });
  }

  /** A listener that could not be opened gets no rule: its target would be closed. */
  #rules(): ProxyRule[] {
    return [...this.#entries.values()].flatMap(({ redirected, bound }) =>
      redirected.flatMap((spec) => {
        const port = bound.get(spec.traffic);
        return port === undefined ? [] : [ruleFor(spec, this.#address, port)];
      }),
    );
  }

  #conflictProblems(): PortalProblem[] {
    const [first] = this.#conflicts;
    if (first === undefined) return [];
    const { address, port, toAddress, toPort } = first;
    const listen = portalText({ address, port, protocol: 'TCP' });
    const owner = [...this.#entries].find(([, { redirected }]) =>
      redirected.some((spec) => spec.port === port && [spec.address, '*'].includes(address)),
    );
    const servicePort = owner?.[0] ?? listen;
    const message =
      `${servicePort} cannot have ${listen}: a portproxy rule of another program redirects it ` +
      `(netsh interface portproxy show all; ${toAddress}:${toPort})`;
    const code = 'KPNG_PORTAL_CONFLICT';
    return [{ servicePort, portal: undefined, code, message, count: this.#conflicts.length }];
  }
}
