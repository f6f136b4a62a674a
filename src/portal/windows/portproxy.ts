import type { ListenSpec, Protocol, Traffic } from '../../proxysocket/spec.ts';
import type { HostAddress } from '../../util/host-addresses.ts';
import { KpngError } from '../../errors.ts';
import type { AddressPortal } from '../address.ts';
import { portalFailed, portalWritten } from '../events.ts';
import { formerKey, type PortAllocator } from '../port-allocator.ts';
import type { Portal, PortalPlan, PortalProblem, ServicePortPortals } from '../portal.ts';
import { portalText, sameListen } from '../text.ts';
import { ruleFor, type ProxyRule } from './portproxy-rules.ts';
import type { RuleStore } from './portproxy-store.ts';

export interface PortProxyOptions {
  /** Decides which service port has which address, and puts addresses on the interface. */
  readonly places: AddressPortal;
  readonly store: RuleStore;
  readonly allocator: PortAllocator;
  /** IP literal of the proxy ports; `0.0.0.0` and `::` stand for the loopback address. */
  readonly bindAddress: string;
  /** Whether `close` removes the rules. */
  readonly removeOnClose: boolean;
}

/** What is known of one service port. */
interface Entry {
  /** What it wants to be reached at, and is led to proxy ports by rules. */
  led: readonly ListenSpec[];
  /** What the engine listens on. */
  listen: readonly ListenSpec[];
  /** The port that the engine has for each kind of traffic. */
  readonly bound: Map<Traffic, number>;
}

type Bound = ReadonlyMap<string, readonly { listen: ListenSpec; boundPort: number }[]>;

/**
 * Leads TCP to proxy ports with rules of `netsh interface portproxy`, for hosts where service addresses
 * may not be listened on: the IP Helper service of Windows does that.
 *
 * It knows TCP only, so UDP listens on the service addresses. And it dials: the proxy sees the host itself
 * for a client, so session affinity makes no difference between clients, and a service port with source
 * ranges, which could not tell anybody, is listened on as well.
 */
export class PortProxyPortal implements Portal {
  readonly kind = 'portproxy';
  readonly #places: AddressPortal;
  readonly #store: RuleStore;
  readonly #allocator: PortAllocator;
  readonly #address: string;
  readonly #removeOnClose: boolean;
  readonly #entries = new Map<string, Entry>();
  readonly #protocols = new Map<string, Protocol>();
  /** Service ports that have no proxy port yet, and what they want. */
  readonly #waiting = new Map<string, readonly ListenSpec[]>();
  /** Listeners whose proxy port another program holds, by service port. */
  readonly #foreign = new Map<string, ListenSpec>();
  #conflicts: readonly ProxyRule[] = [];
  #isFirst = true;
  #closed: Promise<void> | undefined;

  constructor(options: PortProxyOptions) {
    this.#places = options.places;
    this.#store = options.store;
    this.#allocator = options.allocator;
    const { bindAddress } = options;
    this.#address = { '0.0.0.0': '127.0.0.1', '::': '::1' }[bindAddress] ?? bindAddress;
    this.#removeOnClose = options.removeOnClose;
  }

  plan(set: readonly ServicePortPortals[], remove: readonly string[]): PortalPlan {
    for (const name of remove) {
      this.#release(name);
      this.#protocols.delete(name);
      this.#waiting.delete(name);
      this.#foreign.delete(name);
    }
    for (const { servicePort, portals } of set) {
      const [first] = portals;
      if (first !== undefined) this.#protocols.set(servicePort, first.protocol);
    }
    this.#giveUpForeign();
    const { listen: places, problems } = this.#places.plan(set, remove);
    const listen = new Map<string, readonly ListenSpec[]>();
    for (const [name, wanted] of new Map([...this.#waiting, ...places])) {
      const former = this.#entries.get(name);
      const next = this.#entryOf(name, wanted, former);
      if (next === undefined) this.#waiting.set(name, wanted);
      else this.#waiting.delete(name);
      if (next !== undefined && !(former && sameListen(former.listen, next.listen))) {
        listen.set(name, next.listen);
      }
    }
    return { listen, problems: [...problems, ...this.problems()] };
  }

  portTaken(servicePort: string, listen: ListenSpec): void {
    if (listen.address === this.#address) this.#foreign.set(servicePort, listen);
  }

  problems(): readonly PortalProblem[] {
    const exhausted = [...this.#waiting.keys()].map((name) => this.#allocator.exhausted(name));
    return [...exhausted, ...this.#conflictProblems()];
  }

  prepare(): Promise<void> {
    return this.#places.prepare();
  }

  /** Rejects with KPNG_PORTAL_* when rules cannot be written; the addresses are in order all the same. */
  async commit(bound: Bound): Promise<void> {
    for (const [name, list] of bound) {
      const entry = this.#entries.get(name);
      entry?.bound.clear();
      for (const { listen, boundPort } of list) {
        if (listen.address === this.#address) entry?.bound.set(listen.traffic, boundPort);
      }
    }
    await this.#write(this.#rules());
    await this.#places.commit();
  }

  hostAddresses(): readonly HostAddress[] {
    return this.#places.hostAddresses();
  }

  /** Call it when nothing listens any more. */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    try {
      if (this.#removeOnClose) await this.#write([]);
    } finally {
      await this.#places.close();
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

  /** Undefined when there is no proxy port left for it. */
  #entryOf(
    name: string,
    wanted: readonly ListenSpec[],
    former: Entry | undefined,
  ): Entry | undefined {
    const isLed = (spec: ListenSpec): boolean =>
      this.#protocols.get(name) === 'TCP' && spec.sourceRanges === undefined;
    const led = wanted.filter(isLed);
    const listen: ListenSpec[] = wanted.filter((spec) => !isLed(spec));
    for (const traffic of new Set(led.map((spec) => spec.traffic))) {
      const has = former?.listen.find(
        (spec) => spec.address === this.#address && spec.traffic === traffic,
      );
      const port = has?.port ?? this.#allocator.allocate(formerKey(name, this.#address, traffic));
      if (port === undefined) return undefined;
      listen.push({ address: this.#address, port, traffic });
    }
    const kinds = new Set(led.map((spec) => spec.traffic));
    for (const spec of former?.listen ?? []) {
      if (spec.address === this.#address && !kinds.has(spec.traffic)) {
        this.#allocator.release(spec.port);
        former?.bound.delete(spec.traffic);
      }
    }
    const entry: Entry = { led, listen, bound: former?.bound ?? new Map() };
    this.#entries.set(name, entry);
    return entry;
  }

  /** Service ports whose proxy port another program holds wait for another one, while there is one. */
  #giveUpForeign(): void {
    for (const [name, taken] of this.#foreign) {
      if (!this.#allocator.hasOther) return;
      this.#foreign.delete(name);
      const entry = this.#entries.get(name);
      const isTaken = (spec: ListenSpec): boolean =>
        spec.address === taken.address && spec.port === taken.port;
      if (entry?.listen.some(isTaken) !== true) continue;
      this.#allocator.reject(taken.port);
      entry.listen = entry.listen.filter((spec) => !isTaken(spec));
      const own = entry.listen.filter(({ address }) => address !== this.#address);
      this.#waiting.set(name, [...entry.led, ...own]);
    }
  }

  #release(name: string): void {
    for (const { address, port } of this.#entries.get(name)?.listen ?? []) {
      if (address === this.#address) this.#allocator.release(port);
    }
    this.#entries.delete(name);
  }

  /** A listener that could not be opened has no rule: nobody would answer behind it. */
  #rules(): ProxyRule[] {
    return [...this.#entries.values()].flatMap(({ led, bound }) =>
      led.flatMap((spec) => {
        const port = bound.get(spec.traffic);
        return port === undefined ? [] : [ruleFor(spec, this.#address, port)];
      }),
    );
  }

  #conflictProblems(): PortalProblem[] {
    return this.#conflicts.map(({ address, port, toAddress, toPort }) => {
      const place = portalText({ address, port, protocol: 'TCP' });
      const owner = [...this.#entries].find(([, { led }]) =>
        led.some((spec) => spec.port === port && [spec.address, '*'].includes(address)),
      );
      const servicePort = owner?.[0] ?? place;
      return {
        servicePort,
        portal: undefined,
        code: 'KPNG_PORTAL_CONFLICT',
        message:
          `${servicePort} cannot have ${place}: a portproxy rule of somebody else leads from there ` +
          `(netsh interface portproxy show all; ${toAddress}:${toPort})`,
      };
    });
  }
}
